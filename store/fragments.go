package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Node is a data node with everything below it.
type Node struct {
	// Step is the last step of the node's xpath; Step makes one.
	Step string
	// Leaves is a JSON object; empty is {}.
	Leaves []byte
	// Children are in no particular order: the tables do not keep one.
	Children []Node
}

// count is the number of rows of a tree.
func (n *Node) count() int {
	c := 1
	for i := range n.Children {
		c += n.Children[i].count()
	}
	return c
}

// MissingError names data nodes that do not exist.
type MissingError struct{ XPaths []string }

func (e *MissingError) Error() string { return "data nodes not found: " + someOf(e.XPaths) }

// AlreadyDefinedError names data nodes that exist already, or that were given
// twice.
type AlreadyDefinedError struct{ XPaths []string }

func (e *AlreadyDefinedError) Error() string {
	return "data nodes already defined: " + someOf(e.XPaths)
}

// someOf keeps an error's text short however many nodes it names.
func someOf(xpaths []string) string {
	const most = 3
	if len(xpaths) <= most {
		return strings.Join(xpaths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(xpaths[:most], ", "), len(xpaths)-most)
}

// repeated runs fn, one transaction, and again when PostgreSQL gave it up for
// another writer's sake (deadlock, serialization): such a victim wrote nothing.
func (s *Store) repeated(ctx context.Context, op string, fn func() error) error {
	for {
		err := fn()
		if s.classOf(err) != classRetry {
			return s.classify(op, err)
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return s.classify(op, err)
		}
	}
}

// longest bounds a transaction that cannot be split, however many rows it
// touches.
func (s *Store) longest() time.Duration { return s.cfg.TransactionTimeout * singleFactor }
