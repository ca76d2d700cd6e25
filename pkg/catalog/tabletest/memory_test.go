package tabletest

import (
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	Run(t, Backend{
		Open: func(*testing.T) catalog.Table { return new(Memory) },
		Put:  func(_ *testing.T, table catalog.Table, k catalog.Key, schema int64) { table.(*Memory).put(k, schema) },
	})
}
