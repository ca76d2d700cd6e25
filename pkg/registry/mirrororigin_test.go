package registry_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// day returns the day n of a month, at midnight. Day 0 is the zero time.
func day(n int) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC)
}

func parsed(t *testing.T, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// lists returns what an origin lists. Each version is written as VERSION or as
// VERSION@DAY with its publication time.
func lists(t *testing.T, words string) map[registry.Version]time.Time {
	t.Helper()
	all := make(map[registry.Version]time.Time)
	for word := range strings.FieldsSeq(words) {
		text, at, _ := strings.Cut(word, "@")
		v, err := registry.ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if at != "" {
			if _, err := fmt.Sscan(at, &n); err != nil {
				t.Fatal(err)
			}
		}
		all[v] = day(n)
	}
	return all
}

// seen describes the versions of an origin, such as "1.0.0@3 seen 5".
func seen(o registry.MirrorOrigin) string {
	var all []string
	for _, v := range o.Versions {
		text := v.Version.String()
		if !v.PublishedAt.IsZero() {
			text += fmt.Sprintf("@%d", v.PublishedAt.Day())
		}
		if !v.SeenAt.IsZero() {
			text += fmt.Sprintf(" seen %d", v.SeenAt.Day())
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestSee(t *testing.T) {
	t.Parallel()
	type look struct {
		day     int
		lists   string
		changed bool
	}
	for name, test := range map[string]struct {
		looks []look
		want  string
	}{
		"first sight":       {[]look{{5, "1.0.0@1 1.1.0@4", true}}, "1.1.0@4, 1.0.0@1"},
		"nothing new":       {[]look{{5, "1.0.0@1", true}, {6, "1.0.0@1", false}}, "1.0.0@1"},
		"no version at all": {[]look{{5, "", true}, {6, "1.0.0@1", true}}, "1.0.0@1 seen 6"},
		"a later version":   {[]look{{5, "1.0.0@1", true}, {7, "1.0.0@1 1.1.0@6", true}}, "1.1.0@6 seen 7, 1.0.0@1"},
		"backdated":         {[]look{{5, "1.0.0@1", true}, {7, "1.0.0@1 1.1.0@2", true}}, "1.1.0@2 seen 7, 1.0.0@1"},
		"postdated":         {[]look{{5, "1.0.0@30", true}}, "1.0.0@30"},
		"without a time":    {[]look{{5, "1.0.0", true}, {7, "1.0.0 1.1.0", true}}, "1.1.0 seen 7, 1.0.0"},
		"a later time":      {[]look{{5, "1.0.0@1", true}, {6, "1.0.0@4", true}}, "1.0.0@4"},
		"an earlier time":   {[]look{{5, "1.0.0@4", true}, {6, "1.0.0@1", false}}, "1.0.0@4"},
		"an earlier time of a later version": {
			[]look{{5, "1.0.0@1", true}, {7, "1.0.0@1 1.1.0@30", true}, {8, "1.0.0@1 1.1.0@6", true}}, "1.1.0@6 seen 7, 1.0.0@1",
		},
		"a later time of a later version": {
			[]look{{5, "1.0.0@1", true}, {7, "1.0.0@1 1.1.0@6", true}, {8, "1.0.0@1 1.1.0@9", true}}, "1.1.0@9 seen 7, 1.0.0@1",
		},
		"the time of a later version is gone": {
			[]look{{5, "1.0.0@1", true}, {7, "1.0.0@1 1.1.0@6", true}, {8, "1.0.0@1 1.1.0", false}}, "1.1.0@6 seen 7, 1.0.0@1",
		},
		"a time at last":   {[]look{{5, "1.0.0", true}, {6, "1.0.0@4", true}}, "1.0.0@4"},
		"the time is gone": {[]look{{5, "1.0.0@4", true}, {6, "1.0.0", false}}, "1.0.0@4"},
		"gone and back": {
			[]look{{5, "1.0.0@1 1.1.0@2", true}, {6, "1.0.0@1", false}, {7, "1.0.0@1 1.1.0@2", false}}, "1.1.0@2, 1.0.0@1",
		},
		"the clock goes back": {[]look{{9, "1.0.0@1", true}, {3, "1.0.0@1 1.1.0@2", true}}, "1.1.0@2 seen 3, 1.0.0@1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o registry.MirrorOrigin
			for _, l := range test.looks {
				if changed := o.See(lists(t, l.lists), day(l.day)); changed != l.changed {
					t.Errorf("day %d: changed is %t", l.day, changed)
				}
			}
			if diff := cmp.Diff(test.want, seen(o)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// of returns versions with the same major number, all published on day 1.
func of(major uint64, n int) map[registry.Version]time.Time {
	all := make(map[registry.Version]time.Time)
	for i := range n {
		all[registry.Version{Major: major, Minor: uint64(i)}] = day(1)
	}
	return all
}

// An origin cannot fill the table: versions that do not fit are not seen, and
// those of the first sight are not lost.
func TestSeeTooMany(t *testing.T) {
	t.Parallel()
	var o registry.MirrorOrigin
	o.See(of(1, 10), day(2))
	flood := of(2, 100_000)
	o.See(flood, day(3))
	full := len(o.Versions)
	if full >= 100_000 {
		t.Errorf("%d versions are stored", full)
	}
	maps.Copy(flood, of(3, 10))
	if o.See(flood, day(4)) {
		t.Error("a full origin changes")
	}
	if diff := cmp.Diff(full, len(o.Versions)); diff != "" {
		t.Error(diff)
	}
	for v := range of(1, 10) {
		if _, ok := o.Seen(v); !ok {
			t.Errorf("%s is lost", v)
		}
	}
	if _, ok := o.Seen(registry.Version{Major: 3}); ok {
		t.Error("a version that does not fit is seen")
	}
}

// After too many versions, the mirror forgets those that the origin lists no
// longer. They are new if they come back.
func TestSeeAfterTooMany(t *testing.T) {
	t.Parallel()
	admitted, returning := registry.Version{Major: 2, Minor: 99_999}, registry.Version{Major: 2, Minor: 99_998}
	var o registry.MirrorOrigin
	o.See(of(1, 10), day(2))
	o.See(of(2, 100_000), day(3))
	o.Admit(admitted, registry.Decision{At: day(3), By: "ada"})
	later := of(3, 10)
	if !o.See(later, day(4)) {
		t.Error("nothing changed")
	}
	if diff := cmp.Diff(10+1+10, len(o.Versions)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	for n, want := range map[registry.Version]time.Time{
		{Major: 1, Minor: 3}: day(0), {Major: 3, Minor: 3}: day(4), admitted: day(3),
	} {
		v, ok := o.Seen(n)
		if !ok {
			t.Errorf("%s is not seen", n)
		}
		if !v.SeenAt.Equal(want) {
			t.Errorf("%s is seen at %s, want %s", n, v.SeenAt, want)
		}
	}
	later[returning] = day(1)
	o.See(later, day(5))
	if v, _ := o.Seen(returning); !v.SeenAt.Equal(day(5)) {
		t.Errorf("a version that returns is seen at %s, want %s", v.SeenAt, day(5))
	}
}

// Learn has times of some versions. It neither adds others nor forgets any.
func TestLearn(t *testing.T) {
	t.Parallel()
	var o registry.MirrorOrigin
	o.See(lists(t, "1.0.0 1.1.0@2"), day(3))
	o.See(lists(t, "1.0.0 1.1.0@2 1.2.0"), day(4))
	before := o
	if !o.Learn(lists(t, "1.0.0@1 1.2.0@4 1.3.0@4")) {
		t.Error("nothing changed")
	}
	if diff := cmp.Diff("1.2.0@4 seen 4, 1.1.0@2, 1.0.0@1", seen(o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if o.Learn(lists(t, "1.0.0@1 1.2.0")) {
		t.Error("it changed again")
	}
	if diff := cmp.Diff("1.2.0 seen 4, 1.1.0@2, 1.0.0", seen(before)); diff != "" {
		t.Errorf("a copy changed too (-want +got):\n%s", diff)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	var o registry.MirrorOrigin
	o.See(lists(t, "1.0.0@1 1.2.0@1"), day(2))
	before := o
	d := registry.Decision{At: day(3), By: "ada", Reason: "a fix"}
	for text := range lists(t, "1.0.0 1.1.0") {
		o.Admit(text, d)
		v, ok := o.Seen(text)
		if !ok {
			t.Fatalf("%s is not seen", text)
		}
		if diff := cmp.Diff(&d, v.Admitted); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if diff := cmp.Diff("1.2.0@1, 1.1.0 seen 3, 1.0.0@1", seen(o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, v := range before.Versions {
		if v.Admitted != nil {
			t.Errorf("%s of a copy is admitted too", v.Version)
		}
	}
}

func key(fingerprint string) registry.OriginKey {
	return registry.OriginKey{ID: fingerprint[len(fingerprint)-4:], Fingerprint: fingerprint}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	v := registry.Version{Major: 1}
	of := func(k registry.OriginKey) registry.RefusedVersion { return registry.RefusedVersion{Version: v, Key: k} }
	for name, test := range map[string]struct {
		before  registry.MirrorOrigin
		key     registry.OriginKey
		changed bool
		want    registry.MirrorOrigin
	}{
		"the first": {registry.MirrorOrigin{}, key("01AAAA"), true, registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA")}}},
		"it again": {
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA")}}, key("01AAAA"), false,
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA")}},
		},
		"a second": {
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA")}}, key("01BBBB"), true,
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA"), key("01BBBB")}},
		},
		"one of the same ID": {
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA")}}, key("02AAAA"), true,
			registry.MirrorOrigin{Keys: []registry.OriginKey{key("01AAAA"), key("02AAAA")}},
		},
		"a refused one": {
			registry.MirrorOrigin{
				Keys:    []registry.OriginKey{key("01AAAA")},
				Refused: []registry.RefusedVersion{of(key("01BBBB")), of(key("01CCCC"))},
			}, key("01BBBB"), true,
			registry.MirrorOrigin{
				Keys:    []registry.OriginKey{key("01AAAA"), key("01BBBB")},
				Refused: []registry.RefusedVersion{of(key("01CCCC"))},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := test.before
			if changed := o.Trust(test.key); changed != test.changed {
				t.Errorf("changed is %t", changed)
			}
			if test.want.Refused == nil {
				o.Refused = nil
			}
			if diff := cmp.Diff(test.want, o); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !o.Trusts(test.key) {
				t.Error("it is not trusted")
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	var o registry.MirrorOrigin
	refuse := func(minor uint64, k registry.OriginKey, changed bool) {
		t.Helper()
		r := registry.RefusedVersion{Version: registry.Version{Minor: minor}, Key: k, At: day(1)}
		if o.Refuse(r) != changed {
			t.Errorf("0.%d.0: changed is %t", minor, !changed)
		}
	}
	refuse(1, key("01AAAA"), true)
	refuse(1, key("01AAAA"), false)
	refuse(1, key("02AAAA"), true)
	refuse(2, registry.OriginKey{}, true)
	refuse(2, registry.OriginKey{}, false)
	if diff := cmp.Diff(2, len(o.Refused)); diff != "" {
		t.Errorf("refused versions (-want +got):\n%s", diff)
	}
	for i := range uint64(100) {
		refuse(10+i, key("01AAAA"), true)
	}
	if len(o.Refused) > 50 {
		t.Errorf("%d refusals are stored", len(o.Refused))
	}
	if got := o.Refused[0].Version.Minor; got != 109 {
		t.Errorf("the first refusal is of 0.%d.0, want the latest", got)
	}
}

// A run refuses the same versions as the one before. If there is no room for all,
// a later run still records nothing, and the newest versions remain.
func TestRefuseAgain(t *testing.T) {
	t.Parallel()
	one := func(int) registry.OriginKey { return key("01AAAA") }
	two := func(i int) registry.OriginKey { return key(fmt.Sprintf("0%dAAAA", i%2)) }
	for name, test := range map[string]struct {
		versions, runs int
		key            func(int) registry.OriginKey
		want           []int // recorded refusals in each run
	}{
		"few":         {20, 3, one, []int{20, 0, 0}},
		"many":        {25, 3, one, []int{25, 0, 0}},
		"two keys":    {50, 3, two, []int{50, 0, 0}},
		"no key":      {25, 3, func(int) registry.OriginKey { return registry.OriginKey{} }, []int{25, 0, 0}},
		"a key each":  {25, 3, func(i int) registry.OriginKey { return key(fmt.Sprintf("01AA%02d", i)) }, []int{25, 0, 0}},
		"newest last": {1000, 3, one, []int{1000, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o registry.MirrorOrigin
			var got []int
			for range test.runs {
				recorded := 0
				for i := range test.versions {
					if o.Refuse(registry.RefusedVersion{Version: registry.Version{Minor: uint64(i)}, Key: test.key(i)}) {
						recorded++
					}
				}
				got = append(got, recorded)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("recorded refusals (-want +got):\n%s", diff)
			}
			newest := uint64(test.versions - 1)
			if !slices.ContainsFunc(o.Refused, func(r registry.RefusedVersion) bool { return r.Version.Minor == newest }) {
				t.Error("the refusal of the newest version is missing")
			}
		})
	}
}

// Pins of versions that are not mirrored stay, also if an origin lists many others, but
// not more than there is room for.
func TestPin(t *testing.T) {
	t.Parallel()
	pin := func(commit string) registry.ModulePin {
		return registry.ModulePin{Source: "https://github.com/acme/vpc", Commit: commit}
	}
	var o registry.MirrorOrigin
	o.See(lists(t, "1.0.0"), day(1))
	o.See(lists(t, "1.0.0 1.1.0 1.2.0"), day(2))
	v, other := parsed(t, "1.1.0"), parsed(t, "1.2.0")
	if !o.Pin(v, pin("a"), day(2)) || o.Pin(v, pin("a"), day(3)) {
		t.Error("the first pin is not new, or the second one is")
	}
	many := make(map[registry.Version]time.Time)
	for i := range 10_001 {
		many[parsed(t, fmt.Sprintf("2.%d.0", i))] = time.Time{}
	}
	o.See(many, day(3))
	if seen, _ := o.Seen(v); seen.Pin.Commit != "a" {
		t.Errorf("after many other versions the pin is %v", seen.Pin)
	}
	for n := range many {
		o.Pin(n, pin("b"), day(4))
	}
	pins := 0
	for _, seen := range o.Versions {
		if seen.Pin.Source != "" {
			pins++
		}
	}
	if pins != 200 {
		t.Errorf("there are %d pins, want 200", pins)
	}
	if seen, _ := o.Seen(v); seen.Pin.Commit != "a" {
		t.Errorf("after many other pins it is %v", seen.Pin)
	}
	o.Pin(other, pin("c"), day(5), v, other)
	for _, n := range []registry.Version{v, other} {
		if seen, _ := o.Seen(n); seen.Pin.Source != "" {
			t.Errorf("%s is mirrored and has the pin %v", n, seen.Pin)
		}
	}
}

// A refusal because of the files stays until the files are read again.
func TestPinRefused(t *testing.T) {
	t.Parallel()
	first := registry.ModulePin{Source: "https://github.com/acme/vpc", Commit: "a", H1: "h1:a"}
	otherFiles, otherCommit, unread := first, first, first
	otherFiles.H1, otherCommit.Commit, unread.H1 = "h1:b", "b", ""
	for _, c := range []struct {
		refused, pin registry.ModulePin
		stays        bool
	}{
		{otherFiles, unread, true}, {otherFiles, first, false}, {otherCommit, unread, false}, {otherCommit, first, false},
	} {
		var o registry.MirrorOrigin
		v := parsed(t, "1.0.0")
		o.Refuse(registry.RefusedVersion{Version: v, Pin: c.refused, At: day(1)})
		o.Pin(v, c.pin, day(2))
		if stays := len(o.Refused) == 1; stays != c.stays {
			t.Errorf("refused %v, now %v: the refusal stays: %v", c.refused, c.pin, stays)
		}
	}
}

func TestValidateOrigin(t *testing.T) {
	t.Parallel()
	p, err := registry.ParseMirrorProvider("registry.example.com/acme/inventory")
	if err != nil {
		t.Fatal(err)
	}
	valid := registry.MirrorOrigin{Address: p.String(), Keys: []registry.OriginKey{key("01AAAA"), key("01BBBB")}}
	valid.See(lists(t, "1.0.0 2.0.0"), day(1))
	valid.Refuse(registry.RefusedVersion{Version: registry.Version{Major: 2}, Key: key("02CCCC")})
	valid.Refuse(registry.RefusedVersion{Version: registry.Version{Major: 3}}) // it has no signature
	if err := valid.Validate(p); err != nil {
		t.Error(err)
	}
	for name, damage := range map[string]func(*registry.MirrorOrigin){
		"another address": func(o *registry.MirrorOrigin) { o.Address = "registry.example.com/acme/other" },
		"no address":      func(o *registry.MirrorOrigin) { o.Address = "" },
		"not sorted": func(o *registry.MirrorOrigin) {
			o.Versions = []registry.SeenVersion{o.Versions[1], o.Versions[0]}
		},
		"twice":                       func(o *registry.MirrorOrigin) { o.Versions = append(o.Versions, o.Versions[1]) },
		"a key without an ID":         func(o *registry.MirrorOrigin) { o.Keys = []registry.OriginKey{{Fingerprint: "01"}} },
		"a key without a fingerprint": func(o *registry.MirrorOrigin) { o.Keys = []registry.OriginKey{{ID: "AAAA"}} },
		"a fingerprint of another key": func(o *registry.MirrorOrigin) {
			o.Keys = []registry.OriginKey{{ID: "AAAA", Fingerprint: "01BBBB"}}
		},
		"a refused fingerprint of another key": func(o *registry.MirrorOrigin) {
			o.Refused = []registry.RefusedVersion{{Key: registry.OriginKey{ID: "AAAA", Fingerprint: "01BBBB"}}}
		},
		"a refused key without an ID": func(o *registry.MirrorOrigin) {
			o.Refused = []registry.RefusedVersion{{Key: registry.OriginKey{Fingerprint: "01BBBB"}}}
		},
	} {
		o := valid
		damage(&o)
		if o.Validate(p) == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
}
