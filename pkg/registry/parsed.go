package registry

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// parsed caches the values of valid texts, each in the slot that the hash of
// its text selects. Requests have few addresses and versions most of the time.
type parsed[V any] [256]atomic.Pointer[parsedText[V]]

type parsedText[V any] struct {
	text  string
	value V
}

var parsedSeed = maphash.MakeSeed()

// get returns the value of a text.
func (p *parsed[V]) get(text string, parse func(string) (V, error)) (V, error) {
	slot := &p[maphash.String(parsedSeed, text)%uint64(len(p))]
	if c := slot.Load(); c != nil && c.text == text {
		return c.value, nil
	}
	value, err := parse(text)
	if err == nil {
		slot.Store(&parsedText[V]{strings.Clone(text), value}) // text can be a part of a long one
	}
	return value, err
}
