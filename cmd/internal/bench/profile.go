package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// profileSeconds is the length of one CPU profile. Several cover a phase:
// `go tool pprof` adds up the files it is given.
const profileSeconds = 1

// profile writes profiles of all workers into files that start with name, until
// the returned function is called. Without a directory it does nothing.
func (p *pair) profile(ctx context.Context, name string) (stop func() error, err error) {
	dir := p.r.cfg.ProfileDir
	if dir == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	save := func(ctx context.Context, w *workerProcess, query, file string) error {
		return w.save(ctx, query, filepath.Join(dir, fmt.Sprintf("%s-%s-%s.pb.gz", name, w.name, file)))
	}
	for _, w := range p.y.workers {
		if err := save(ctx, w, "allocs", "allocs-before"); err != nil {
			return nil, err
		}
	}
	ended := make(chan struct{})
	g, profiling := errgroup.WithContext(ctx)
	for _, w := range p.y.workers {
		g.Go(func() error {
			for n := 1; ; n++ {
				query := fmt.Sprintf("profile?seconds=%d", profileSeconds)
				if err := save(profiling, w, query, fmt.Sprintf("cpu-%03d", n)); err != nil {
					return err
				}
				select {
				case <-ended:
					return nil
				default:
				}
			}
		})
	}
	return func() error {
		close(ended)
		errs := []error{g.Wait()}
		for _, w := range p.y.workers {
			errs = append(errs, save(ctx, w, "allocs", "allocs"))
		}
		return errors.Join(errs...)
	}, nil
}

// save keeps one profile of a worker.
func (w *workerProcess) save(ctx context.Context, query, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.debug+"/debug/pprof/"+query, http.NoBody)
	if err != nil {
		return err
	}
	res, err := operations.Do(req)
	if err != nil {
		return fmt.Errorf("profile %s: %w", w.name, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: %s", w.name, res.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, res.Body)
	return errors.Join(err, f.Close())
}
