package schemas

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"sync"
)

//go:embed yang/*.yang
var yangFiles embed.FS

// Module is one YANG module as CPS keeps it in its yang_resource table.
type Module struct {
	Name     string
	Revision string
	Content  []byte // shared: not to be written to
	Checksum string // SHA-256 of Content in lower-case hex, as CPS computes it
}

// FileName is the name under which CPS stores the module: name@revision.yang.
func (m Module) FileName() string { return m.Name + "@" + m.Revision + ".yang" }

// Load compiles the module alone.
func (m Module) Load() (*Model, error) {
	return Load(map[string][]byte{m.FileName(): m.Content})
}

// Inventory is the model of the CM-handle inventory: module, namespace,
// prefix, revision and node names are those of NCMP's default model, so that
// CPS and NCMP read the rows written by it.
func Inventory() Module { return inventoryModule() }

// BenchDevice is a device model shaped like the OpenROADM devices of CPS's
// performance tests: 86 data nodes a device, five levels deep.
func BenchDevice() Module { return benchModule() }

var (
	inventoryModule = sync.OnceValue(func() Module { return embedded("dmi-registry", "2026-01-28") })
	benchModule     = sync.OnceValue(func() Module { return embedded("bench-device", "2026-01-28") })
)

// embedded panics when the file is not there: that is a broken build.
func embedded(name, revision string) Module {
	m := Module{Name: name, Revision: revision}
	b, err := yangFiles.ReadFile("yang/" + m.FileName())
	if err != nil {
		panic(fmt.Sprintf("schemas: %v", err))
	}
	sum := sha256.Sum256(b)
	m.Content, m.Checksum = b, hex.EncodeToString(sum[:])
	return m
}
