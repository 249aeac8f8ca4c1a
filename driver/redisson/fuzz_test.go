package redisson_test

import "testing"

func FuzzReplies(f *testing.F)                 { protocol.FuzzReplies(f) }
func FuzzRepliesAboutFairLocks(f *testing.F)   { fairProtocol().FuzzReplies(f) }
func FuzzRepliesAboutFencedLocks(f *testing.F) { fencedProtocol().FuzzReplies(f) }
