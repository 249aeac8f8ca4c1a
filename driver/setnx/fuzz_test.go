package setnx_test

import "testing"

func FuzzReplies(f *testing.F) { protocol.FuzzReplies(f) }
