package compare

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// compareConstraints compares two constraints on something with a name. If one
// accepts less than before, the reasons state what it needs now.
func compareConstraints(name, before, after string, v *verdict) {
	if !v.field("version", before, after) {
		return
	}
	same := strings.Join(strings.Fields(before), "") == strings.Join(strings.Fields(after), "")
	switch {
	case same || covers(after, before) && covers(before, after):
		v.notes("the constraint is written differently")
		return
	case covers(after, before):
		v.notes("it accepts more versions")
		return
	}
	was, known := parseRange(before)
	is, also := parseRange(after)
	if !known || !also {
		v.breaks("it accepts other versions")
		return
	}
	reasons, complete := is.needs(name, was)
	for _, reason := range reasons {
		v.breaks(reason)
	}
	if complete || covers(before, after) {
		v.stated()
	}
}

// release is a version without a pre-release.
type release [3]uint64

func (r release) compare(other release) int {
	return cmp.Or(cmp.Compare(r[0], other[0]), cmp.Compare(r[1], other[1]), cmp.Compare(r[2], other[2]))
}

// next returns the lowest release after r.
func (r release) next() release { return release{r[0], r[1], r[2] + 1} }

// constraint is one condition of a version constraint.
type constraint struct {
	operator string
	bound    release
	parts    int // the number of parts of the bound as written
}

func (c constraint) accepts(r release) bool {
	order := r.compare(c.bound)
	switch c.operator {
	case "", "=":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	}
	return order >= 0 && r.compare(c.end()) < 0 // ~>
}

// end returns the first release after those that a constraint with the operator
// ~> accepts.
func (c constraint) end() release {
	if c.parts == 3 {
		return release{c.bound[0], c.bound[1] + 1}
	}
	return release{c.bound[0] + 1}
}

var conditions = regexp.MustCompile(`^(=|!=|>|>=|<|<=|~>)?\s*v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?$`)

// parseConstraints parses conditions that are separated by commas. It returns
// false for conditions that it cannot compare, such as those with pre-releases.
func parseConstraints(text string) ([]constraint, bool) {
	var all []constraint
	if strings.TrimSpace(text) == "" {
		return all, true
	}
	for part := range strings.SplitSeq(text, ",") {
		found := conditions.FindStringSubmatch(strings.TrimSpace(part))
		if found == nil {
			return nil, false
		}
		c := constraint{operator: found[1]}
		for i, digits := range found[2:] {
			if digits != "" {
				c.bound[i], _ = strconv.ParseUint(digits, 10, 64) // at most nine digits
				c.parts++
			}
		}
		all = append(all, c)
	}
	return all, true
}

func acceptedBy(all []constraint, r release) bool {
	for _, c := range all {
		if !c.accepts(r) {
			return false
		}
	}
	return true
}

// covers reports whether a version constraint accepts every release that
// another one accepts. It returns false if it cannot find out.
func covers(wide, narrow string) bool {
	outer, parsed := parseConstraints(wide)
	inner, also := parseConstraints(narrow)
	if !parsed || !also {
		return false
	}
	// Between two neighboring bounds, all releases are accepted or none. The
	// bounds and the releases next to them represent all others.
	probes := []release{{}}
	for _, c := range append(append([]constraint{}, outer...), inner...) {
		probes = append(probes, c.bound, c.bound.next(), c.end())
	}
	for _, r := range probes {
		if acceptedBy(inner, r) && !acceptedBy(outer, r) {
			return false
		}
	}
	return true
}
