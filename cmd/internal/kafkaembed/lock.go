package kafkaembed

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrInUse means that another broker has the data directory open.
var ErrInUse = errors.New("data directory is in use by another broker")

// lockFile takes an exclusive lock on a file, creating it. Closing the file
// gives the lock back; so does the end of the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
