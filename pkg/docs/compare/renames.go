package compare

import (
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
)

// The limits of finding renamed entries, so that it ends soon. A module with
// 300 other inputs has more.
const (
	maxPairs = 100_000 // of entries in one comparison
	maxName  = 128     // bytes
)

// candidate is a removed or an added entry that can be a renamed one.
type candidate struct {
	name  string
	words []string
	// description can be empty. The other texts have to be the same.
	description, kind string
	// growing means that a name with further words can be the new one.
	growing bool
}

func newCandidate(name, description, kind string, growing bool) candidate {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' })
	return candidate{name, words, description, kind, growing && len(words) > 1}
}

// inputCandidate returns an input by its type and default. The default of a
// sensitive input is not stored, and so is never the same.
func inputCandidate(in docs.Input) candidate {
	if in.Sensitive && !in.Required {
		return candidate{}
	}
	kind := strings.Join([]string{
		strings.Join(tokens(in.Type), " "), string(in.TypeConstraint), compact(in.Default),
		strconv.FormatBool(in.Required), strconv.FormatBool(in.Sensitive),
	}, "\n")
	return newCandidate(in.Name, in.Description, kind, true)
}

func outputCandidate(out docs.Output) candidate {
	kind := strconv.FormatBool(out.Sensitive) + strconv.FormatBool(out.Ephemeral)
	return newCandidate(out.Name, out.Description, kind, false)
}

// resourceCandidate returns a resource by its type.
func resourceCandidate(address string) candidate {
	at := strings.LastIndexByte(address, '.')
	c := newCandidate(address[at+1:], "", address[:at], false)
	c.name = address
	return c
}

// renames returns the new names of removed entries that were perhaps renamed.
// Two entries are a pair if each is more like the other than any other entry
// is.
func renames(removed, added []candidate, pairs *int) map[string]string {
	if len(removed)*len(added) > *pairs {
		return nil
	}
	*pairs -= len(removed) * len(added)
	type best struct {
		likeness
		at int // -1 if several are equally like
	}
	keep := func(b *best, l likeness, at int) {
		switch {
		case b.likeness == unlike || l < b.likeness:
			*b = best{l, at}
		case l == b.likeness:
			b.at = -1
		}
	}
	ofRemoved := slices.Repeat([]best{{unlike, -1}}, len(removed))
	ofAdded := slices.Repeat([]best{{unlike, -1}}, len(added))
	for i, before := range removed {
		for k, after := range added {
			if l := before.like(after); l != unlike {
				keep(&ofRemoved[i], l, k)
				keep(&ofAdded[k], l, i)
			}
		}
	}
	found := make(map[string]string)
	for i, b := range ofRemoved {
		if b.at >= 0 && ofAdded[b.at].at == i {
			found[removed[i].name] = added[b.at].name
		}
	}
	return found
}

// likeness is how much two entries differ.
type likeness int

const (
	// unlike means that they have nothing to do with each other.
	unlike likeness = -1
	// another is added for different descriptions. It exceeds the difference of
	// any two names.
	another likeness = maxName
)

// like compares two entries. Names are alike if one of them has further words,
// but at most as many as both have, or if one word is spelled differently. With
// the same description, a common word suffices unless two others are opposite.
// Otherwise further words of a new name can be of something else, as in
// cluster_version and cluster_platform_version.
func (before candidate) like(after candidate) likeness {
	if before.kind != after.kind || max(len(before.name), len(after.name)) > maxName {
		return unlike
	}
	was, is := before.words, after.words
	common := 0
	rest := slices.Clone(is)
	var gone []string
	for _, word := range was {
		if at := slices.Index(rest, word); at >= 0 {
			rest = slices.Delete(rest, at, at+1)
			common++
		} else {
			gone = append(gone, word)
		}
	}
	for _, word := range gone {
		if slices.ContainsFunc(rest, func(other string) bool { return areOpposite(word, other) }) {
			return unlike
		}
	}
	differ := likeness(len(was) + len(is) - 2*common)
	same := before.description != "" && before.description == after.description
	switch {
	case same && common > 0:
		return differ
	case len(is) > len(was) && !before.growing:
		return unlike
	case int(differ) <= common && common == min(len(was), len(is)), strings.Join(was, "") == strings.Join(is, ""),
		differ == 2 && len(was) == len(is) && isMisspelled(was, is):
	default:
		return unlike
	}
	if same {
		return differ
	}
	return differ + another
}

// opposites are pairs of words for things that a module often has both of.
const opposites = " min/max minimum/maximum least/most lower/upper low/high first/last start/end start/stop begin/end" +
	" in/out ingress/egress inbound/outbound incoming/outgoing source/destination src/dst from/to before/after" +
	" enable/disable enabled/disabled allow/deny create/delete create/destroy add/remove attach/detach include/exclude" +
	" public/private internal/external read/write reader/writer client/server primary/secondary primary/replica" +
	" requester/accepter ipv4/ipv6 http/https "

func areOpposite(a, b string) bool {
	return strings.Contains(opposites, " "+a+"/"+b+" ") || strings.Contains(opposites, " "+b+"/"+a+" ")
}

// isMisspelled reports whether the only word that differs lacks a letter, such
// as the plural s, or has two letters in another order. Numbers and short words
// differ in meaning.
func isMisspelled(was, is []string) bool {
	for i := range was {
		a, b := was[i], is[i]
		if a == b {
			continue
		}
		if len(a) > len(b) {
			a, b = b, a
		}
		at := 0
		for at < len(a) && a[at] == b[at] {
			at++
		}
		switch {
		case len(a) < 4 || strings.ContainsAny(a+b, "0123456789"):
			return false
		case len(a)+1 == len(b):
			return a[at:] == b[at+1:]
		}
		return len(a) == len(b) && at+1 < len(a) && a[at] == b[at+1] && a[at+1] == b[at] && a[at+2:] == b[at+2:]
	}
	return false
}
