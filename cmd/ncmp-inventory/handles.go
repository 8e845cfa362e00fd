package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newGetCommand(a *app) *cobra.Command {
	var private, asJSON bool
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Shows a CM handle, by its id or alternate id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.load("database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			h, err := s.GetHandle(cmd.Context(), args[0])
			if errors.Is(err, store.ErrNoHandle) {
				return &exitError{exitFailed, fmt.Errorf("no CM handle has the id or alternate id %q", args[0])}
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.stdout, viewOf(&h, private), jsontext.WithIndent("  "))
			}
			return printHandle(a.stdout, &h, private)
		},
	}
	cmd.Flags().BoolVar(&private, "private", false, "show the values of private properties")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func newListCommand(a *app) *cobra.Command {
	var (
		f      store.Filter
		tag    string
		state  string
		trust  string
		props  []string
		stuck  time.Duration
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists CM handles, sorted by id",
		Example: `  ncmp-inventory list --state LOCKED --stuck 10m
  ncmp-inventory list --dmi http://dmi:8080 --property rack=R4 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.State = inventory.State(strings.ToUpper(state))
			switch {
			case f.State != "" && (!f.State.Known() || f.State == inventory.Deleted):
				return usage("--state %s: want ADVISED, READY, LOCKED or DELETING", state)
			case stuck < 0:
				return usage("--stuck %s: want how long ago, for example 10m", stuck)
			case limit < 0:
				return usage("--limit %d: want at least 1, or 0 for all", limit)
			}
			f.Trust = inventory.TrustLevel(strings.ToUpper(trust))
			if f.Trust != inventory.TrustUnset && f.Trust != inventory.TrustNone && f.Trust != inventory.TrustComplete {
				return &exitError{exitUsage, fmt.Errorf("--trust %s: want NONE or COMPLETE", trust)}
			}
			if cmd.Flags().Changed("tag") {
				f.Tag = inventory.SetText(tag)
			}
			if stuck > 0 {
				f.StuckSince = time.Now().Add(-stuck)
			}
			for _, p := range props {
				name, value, ok := strings.Cut(p, "=")
				if !ok {
					return &exitError{exitUsage, fmt.Errorf("--property %s: want NAME=VALUE", p)}
				}
				f.Public = append(f.Public, inventory.Property{Name: name, Value: value})
			}
			c, err := a.load("database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			return a.list(cmd, s, f, limit, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.DMI, "dmi", "", "only handles of this DMI (any of the five names)")
	fl.StringVar(&state, "state", "", "only handles in this state")
	fl.StringVar(&tag, "tag", "", `only handles with this module set tag; "" is no tag`)
	fl.StringVar(&trust, "trust", "", "only handles of this trust level")
	fl.StringArrayVar(&props, "property", nil, "only handles with this public property, NAME=VALUE; can be repeated")
	fl.DurationVar(&stuck, "stuck", 0, "only handles that are not READY and have not changed for so long")
	fl.StringVar(&f.After, "after", "", "go on behind this id")
	fl.IntVar(&limit, "limit", 100, "at most so many handles; 0 is all")
	fl.BoolVar(&asJSON, "json", false, "a line of JSON for each handle")
	return cmd
}

func (a *app) list(cmd *cobra.Command, s *store.Store, f store.Filter, limit int, asJSON bool) error {
	t := newTable(a.stdout)
	if !asJSON {
		t.row("CM HANDLE", "ALTERNATE ID", "STATE", "SINCE", "TAG", "DMI", "TRUST", "LOCK")
	}
	n, more, last := 0, false, ""
	for h, err := range s.ListHandles(cmd.Context(), f) {
		if err != nil {
			return errors.Join(err, t.flush())
		}
		if more = limit > 0 && n == limit; more {
			break
		}
		n, last = n+1, h.ID
		if asJSON {
			if err := writeJSON(a.stdout, viewOf(&h, false)); err != nil {
				return err
			}
			continue
		}
		t.row(h.ID, h.AlternateID, string(h.State.State), h.State.LastUpdate, h.ModuleSetTag, dmiOf(&h.Handle), string(h.Trust), lockText(h.State.Lock))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.stderr, "there are more: go on with --after %s\n", strconv.Quote(last))
	}
	return nil
}

// dmiMembers are the names of the five DMI services as a registration has them.
var dmiMembers = [...]string{
	inventory.DMIService: "dmiPlugin", inventory.DMIDataService: "dmiDataPlugin", inventory.DMIModelService: "dmiModelPlugin",
	inventory.DMIDatajobsRead: "dmiDatajobsReadPlugin", inventory.DMIDatajobsWrite: "dmiDatajobsWritePlugin",
}

// dmiOf is the handle's first DMI name.
func dmiOf(h *inventory.Handle) string {
	for _, d := range h.DMI {
		if d.Value != "" {
			return d.Value
		}
	}
	return ""
}

func lockText(l *inventory.LockReason) string {
	if l == nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSuffix(l.Reason.Value+": "+l.Details.Value, ": "), ": ")
}

// handleJSON is a handle for programs. Members have NCMP's names; private
// values are masked unless asked for.
type handleJSON struct {
	ID          string            `json:"cmHandle"`
	AlternateID string            `json:"alternateId,omitempty"`
	Tag         string            `json:"moduleSetTag,omitempty"`
	ProducerID  string            `json:"dataProducerIdentifier,omitempty"`
	DMI         map[string]string `json:"dmi"`
	Trust       string            `json:"trustLevel"`
	State       stateJSON         `json:"state"`
	Public      map[string]string `json:"publicCmHandleProperties"`
	Private     map[string]string `json:"cmHandleProperties"`
}

type stateJSON struct {
	State      inventory.State `json:"cmHandleState"`
	LastUpdate string          `json:"lastUpdateTime,omitempty"`
	DataSync   *bool           `json:"dataSyncEnabled,omitempty"`
	Lock       *lockJSON       `json:"lockReason,omitempty"`
	Sync       *syncJSON       `json:"dataSyncState,omitempty"`
}

type lockJSON struct {
	Reason  string `json:"reason,omitempty"`
	Details string `json:"details,omitempty"`
}

type syncJSON struct {
	Operational struct {
		State string `json:"syncState,omitempty"`
		Time  string `json:"lastSyncTime,omitempty"`
	} `json:"operational"`
}

const hidden = "***"

func viewOf(h *store.HandleView, private bool) handleJSON {
	v := handleJSON{
		ID: h.ID, AlternateID: h.AlternateID, Tag: h.ModuleSetTag, ProducerID: h.DataProducerID, Trust: string(h.Trust),
		DMI: map[string]string{}, Public: map[string]string{}, Private: map[string]string{},
		State: stateJSON{State: h.State.State, LastUpdate: h.State.LastUpdate},
	}
	for i, d := range h.DMI {
		if d.Set {
			v.DMI[dmiMembers[i]] = d.Value
		}
	}
	for _, p := range h.Public {
		v.Public[p.Name] = p.Value
	}
	for _, p := range h.Private {
		v.Private[p.Name] = hidden
		if private {
			v.Private[p.Name] = p.Value
		}
	}
	if d := h.State.DataSync; d != inventory.Unset {
		on := d == inventory.True
		v.State.DataSync = &on
	}
	if l := h.State.Lock; l != nil {
		v.State.Lock = &lockJSON{l.Reason.Value, l.Details.Value}
	}
	if o := h.State.Operational; o != nil {
		v.State.Sync = &syncJSON{}
		v.State.Sync.Operational.State, v.State.Sync.Operational.Time = o.State.Value, o.LastSyncTime.Value
	}
	return v
}

func printHandle(w io.Writer, h *store.HandleView, private bool) error {
	t := newTable(w)
	add := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	add("CM handle", h.ID)
	add("alternate id", h.AlternateID)
	add("state", string(h.State.State))
	add("since", h.State.LastUpdate)
	add("lock reason", lockText(h.State.Lock))
	if h.State.DataSync != inventory.Unset {
		add("data sync", map[inventory.Tri]string{inventory.True: "on", inventory.False: "off"}[h.State.DataSync])
	}
	if o := h.State.Operational; o != nil {
		add("sync state", strings.TrimSpace(o.State.Value+" "+o.LastSyncTime.Value))
	}
	add("module set tag", h.ModuleSetTag)
	add("data producer id", h.DataProducerID)
	add("trust level", string(h.Trust))
	for i, d := range h.DMI {
		add(dmiMembers[i], d.Value)
	}
	for _, p := range h.Public {
		t.row("public "+p.Name, p.Value)
	}
	for _, p := range h.Private {
		value := hidden
		if private {
			value = p.Value
		}
		t.row("private "+p.Name, value)
	}
	return t.flush()
}

// writeJSON writes one value and a line end.
func writeJSON(w io.Writer, v any, opts ...json.Options) error {
	b, err := json.Marshal(v, append(opts, json.Deterministic(true))...)
	if err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}
