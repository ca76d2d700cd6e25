package search

import (
	"context"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/text/suggest"
)

// nearestTimeout bounds the time that a suggestion may add to the response for
// something that does not exist.
const nearestTimeout = time.Second

// Nearest returns the address that is nearest to one that does not exist, among the
// entries of a kind that include accepts. It returns an empty string if none is near, or
// if the entries cannot be read in time.
func (x *Index) Nearest(ctx context.Context, k Kind, what string, include func(*Entry) bool) string {
	ctx, cancel := context.WithTimeout(ctx, nearestTimeout)
	defer cancel()
	all, err := x.Entries(ctx, k)
	if err != nil {
		return ""
	}
	var addresses []string
	for _, e := range all {
		if e.Address != what && include(e) {
			addresses = append(addresses, e.Address)
		}
	}
	return Nearest(what, addresses)
}

// Nearest returns the address that is nearest to what. That is one within what, one that
// is mistyped, or else one with the same name. If what is only a namespace, a hostname,
// or a hostname with a namespace, the result can be one too. It is empty if none is
// near.
func Nearest(what string, addresses []string) string {
	parts := strings.Split(what, "/")
	var sameNamespace, all []string
	sameName, most := "", 0
	for _, address := range addresses {
		if strings.HasPrefix(address, what+"/") {
			return address
		}
		of := strings.Split(address, "/")
		name := 1 // where it is
		if strings.Contains(of[0], ".") {
			name = 2
		}
		if all = append(all, address); len(parts) <= name {
			all = append(all, strings.Join(of[:len(parts)], "/"))
		}
		if of[0] == parts[0] {
			sameNamespace = append(sameNamespace, address)
		}
		if len(parts) == len(of) && parts[name] == of[name] {
			equal := 0
			for i := range of {
				if parts[i] == of[i] {
					equal++
				}
			}
			if equal > most {
				sameName, most = address, equal
			}
		}
	}
	for _, words := range [][]string{sameNamespace, all} {
		if near, ok := suggest.Nearest(what, words); ok {
			return near
		}
	}
	return sameName
}
