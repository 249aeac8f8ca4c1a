//go:build unix

package pgtest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// stranger returns the user that a server of root runs as, nil if this is not root.
func stranger() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

func unprivileged() *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: stranger()} }

// own gives a folder to the user that the server runs as.
func own(dir string) error {
	if u := stranger(); u != nil {
		return os.Chown(dir, int(u.Uid), int(u.Gid))
	}
	return nil
}
