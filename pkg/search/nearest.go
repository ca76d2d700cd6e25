package search

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/text/suggest"
)

// nearestTimeout bounds the time in which entries are read for a suggestion.
const nearestTimeout = time.Second

// Nearest returns the address that is nearest to what, as [Nearest] does, among
// the entries of a kind that include accepts. That is what itself if it is an
// entry. The result is empty if the entries cannot be read in time.
func (x *Index) Nearest(ctx context.Context, k Kind, what string, include func(*Entry) bool) string {
	ctx, cancel := context.WithTimeout(ctx, nearestTimeout)
	defer cancel()
	all, err := x.Entries(ctx, k)
	if err != nil {
		return ""
	}
	var addresses []string
	for _, e := range all {
		if !include(e) {
			continue
		}
		if e.Address == what {
			return what
		}
		addresses = append(addresses, e.Address)
	}
	return Nearest(what, addresses)
}

// Nearest returns the address that is nearest to what. That is one within what,
// one of which some parts are mistyped, or else one with the same name. If what
// is only a namespace, a hostname, or a hostname with a namespace, the result
// can be one too. It is empty if none is near.
func Nearest(what string, addresses []string) string {
	parts := strings.Split(what, "/")
	var of, mistyped []string
	sameName, most := "", 0
	for _, address := range addresses {
		if strings.HasPrefix(address, what+"/") {
			return address
		}
		of = slices.AppendSeq(of[:0], strings.SplitSeq(address, "/"))
		name := 1 // its index
		if strings.Contains(of[0], ".") {
			name = 2
		}
		if len(of) < len(parts) || len(of) > len(parts) && len(parts) > name {
			continue
		}
		equal, near := 0, 0
		for i, part := range parts {
			if part == of[i] {
				equal++
			}
		}
		for i, part := range parts {
			if part == of[i] || len(parts) > 1 && equal == 0 { // not all parts are mistyped
				continue
			}
			if _, isNear := suggest.Nearest(part, of[i:i+1]); !isNear {
				break
			}
			near++
		}
		switch {
		case equal+near == len(parts):
			mistyped = append(mistyped, strings.Join(of[:len(parts)], "/"))
		case len(parts) > name && parts[name] == of[name] && equal > most:
			sameName, most = address, equal
		}
	}
	if nearest, found := suggest.Nearest(what, mistyped); found {
		return nearest
	}
	return sameName
}
