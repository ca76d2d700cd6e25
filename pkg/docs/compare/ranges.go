package compare

import (
	"slices"
	"strconv"
	"strings"
)

// releases are those that a version constraint accepts: from low up to but
// without high, and without some in between.
type releases struct {
	low release
	// lowText is the lower bound as written, if that has fewer parts.
	lowText string
	high    release // not a bound if endless
	endless bool
	without []release // sorted
}

// parseRange returns the releases that a constraint accepts. It returns false
// if there are none, or if they cannot be compared.
func parseRange(text string) (r releases, ok bool) {
	r.endless = true
	all, ok := parseConstraints(text)
	for _, c := range all {
		switch c.operator {
		case "!=":
			r.without = append(r.without, c.bound)
		case "", "=":
			r.raise(c.bound, c)
			r.lower(c.bound.next())
		case ">":
			r.raise(c.bound.next(), c)
		case ">=":
			r.raise(c.bound, c)
		case "<":
			r.lower(c.bound)
		case "<=":
			r.lower(c.bound.next())
		default: // ~>
			r.raise(c.bound, c)
			r.lower(c.end())
		}
	}
	slices.SortFunc(r.without, release.compare)
	r.without = slices.DeleteFunc(slices.Compact(r.without), func(one release) bool { return !r.spans(one) })
	for len(r.without) > 0 && r.without[0] == r.low {
		r.low, r.without = r.low.next(), r.without[1:]
		r.lowText = r.low.String()
	}
	return r, ok && (r.endless || r.low.compare(r.high) < 0)
}

// raise raises the lower bound, because of a condition.
func (r *releases) raise(low release, c constraint) {
	if r.lowText != "" && low.compare(r.low) <= 0 {
		return
	}
	r.low, r.lowText = low, low.String()
	if low == c.bound {
		parts := strings.Split(r.lowText, ".")
		r.lowText = strings.Join(parts[:c.parts], ".")
	}
}

func (r *releases) lower(high release) {
	if r.endless || high.compare(r.high) < 0 {
		r.high, r.endless = high, false
	}
}

// spans reports whether a release is between the bounds.
func (r releases) spans(one release) bool {
	return one.compare(r.low) >= 0 && (r.endless || one.compare(r.high) < 0)
}

// of describes the releases of something with a name, for example as "aws 6.28
// or later, older than 7".
func (r releases) of(name string) string {
	if !r.endless && r.high == r.low.next() {
		return name + " exactly " + r.lowText
	}
	var bounds []string
	if r.low != (release{}) {
		bounds = append(bounds, r.lowText+" or later")
	}
	if !r.endless {
		bounds = append(bounds, "older than "+r.high.short())
	}
	text := strings.TrimSpace(name + " " + strings.Join(bounds, ", "))
	for _, one := range r.without {
		text += ", but not " + one.String()
	}
	return text
}

// needs returns what something with a name needs, if it accepted other releases
// before. complete means that the reasons describe all that it accepts.
func (r releases) needs(name string, before releases) (reasons []string, complete bool) {
	raised := r.low.compare(before.low) > 0
	// An upper bound that is not lower excludes nothing. It belongs to a lower
	// bound that leaves few releases.
	wider := !before.endless && (r.endless || r.high.compare(before.high) > 0)
	exact := !r.endless && r.high == r.low.next()
	switch {
	case exact || raised && wider:
		return []string{"needs " + r.of(name)}, true
	case raised:
		reasons = append(reasons, "needs "+name+" "+r.lowText+" or later")
	}
	if !r.endless && (before.endless || r.high.compare(before.high) < 0) {
		ended := r.high.short() + " or later"
		if !before.endless && before.high == r.high.following() {
			ended = r.high.short()
		}
		reasons = append(reasons, "no longer accepts "+name+" "+ended)
	}
	for _, one := range r.without {
		if before.spans(one) && !slices.Contains(before.without, one) {
			reasons = append(reasons, "no longer accepts "+name+" "+one.String())
		}
	}
	return reasons, false
}

func (r release) String() string {
	text := make([]string, len(r))
	for i, n := range r {
		text[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(text, ".")
}

// short returns a bound without the zeros at its end.
func (r release) short() string {
	text := strings.TrimSuffix(r.String(), ".0")
	return strings.TrimSuffix(text, ".0")
}

// following returns the bound after all releases that begin like r.short.
func (r release) following() release {
	switch {
	case r[2] > 0:
		return r.next()
	case r[1] > 0:
		return release{r[0], r[1] + 1}
	}
	return release{r[0] + 1}
}
