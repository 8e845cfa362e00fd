//go:build unix

package pgembed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server's processes run as; nil is ourselves.
type account struct{ uid, gid uint32 }

// accountFor picks the user: ourselves, or, if we are root, the owner of the
// data directory, else postgres, else nobody.
func accountFor(dataDir string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if fi, err := os.Stat(filepath.Join(dataDir, "PG_VERSION")); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &account{uid: st.Uid, gid: st.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")
}

// own gives path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// reaches says why the account could not enter dir or a directory above it.
// Parts that do not exist yet are no obstacle.
func (a *account) reaches(dir string) error {
	if a == nil {
		return nil
	}
	for d := dir; ; d = filepath.Dir(d) {
		fi, err := os.Stat(d)
		if err == nil && !a.searches(fi) {
			return fmt.Errorf("%s is closed to user id %d, which PostgreSQL runs as because it refuses to run as root; choose another directory", d, a.uid)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

func (a *account) searches(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	switch {
	case st.Uid == a.uid:
		return fi.Mode()&0o100 != 0
	case st.Gid == a.gid:
		return fi.Mode()&0o010 != 0
	}
	return fi.Mode()&0o001 != 0
}

// command prepares one of PostgreSQL's programs to run as the account.
func (a *account) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = childAttr()
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	cmd.Dir = "/" // our own directory may be closed to the account
	return cmd
}
