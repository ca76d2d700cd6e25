package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MirrorOrigin is what the mirror has seen of a provider at its origin, and what
// operators have decided about it. It exists also for a provider of which no
// version is mirrored.
type MirrorOrigin struct {
	// Address is HOSTNAME/NAMESPACE/TYPE.
	Address string `json:"address"`
	// SeenAt is when the mirror first saw the provider's versions. It is the zero
	// time if it never did.
	SeenAt time.Time `json:"seen_at,omitzero"`
	// Versions are the versions that the origin has listed, and those that an
	// operator has admitted, the newest first. It has few others if there are too
	// many.
	Versions []SeenVersion `json:"versions,omitempty"`
	// Keys are the trusted signing keys, the first one first.
	Keys []OriginKey `json:"keys,omitempty"`
	// Overruled are the IDs of keys that signed mirrored versions although the
	// policy did not allow them. An operator must trust such a key for later
	// versions.
	Overruled []string `json:"overruled_keys,omitempty"`
	// Unsigned is set if an operator accepts that the origin does not sign any
	// more.
	Unsigned *Decision `json:"unsigned,omitempty"`
	// Refused are the versions that were signed by a key that is not trusted, or
	// by none although others were signed. The latest refusal is first.
	Refused []RefusedVersion `json:"refused,omitempty"`
}

// SeenVersion is a version that an origin has listed.
type SeenVersion struct {
	Version Version `json:"version"`
	// PublishedAt is the publication time that the origin gave last. For a version
	// whose SeenAt is the zero time, it is the latest that the origin has ever
	// given. It is the zero time if the origin gave none.
	PublishedAt time.Time `json:"published_at,omitzero"`
	// SeenAt is when the mirror first saw the version. It is the zero time if the
	// mirror saw it when it first saw the provider.
	SeenAt time.Time `json:"seen_at,omitzero"`
	// Admitted is set if an operator has admitted the version early.
	Admitted *Decision `json:"admitted,omitempty"`
	// Pin is what the version of a module is bound to. It is the zero value if the
	// mirror has not looked.
	Pin ModulePin `json:"pin,omitzero"`
}

// OriginKey is a signing key of an origin.
type OriginKey struct {
	// ID is the long key ID, and Fingerprint the whole fingerprint, both in
	// upper-case hexadecimal.
	ID          string `json:"id"`
	Fingerprint string `json:"fingerprint"`
	Owner       string `json:"owner,omitempty"`
	// SeenAt is when the mirror first saw the key.
	SeenAt time.Time `json:"seen_at,omitzero"`
	// Trusted is set if an operator trusts the key. The first key of a provider,
	// and a key that the policy names, need no such decision.
	Trusted *Decision `json:"trusted,omitempty"`
}

// RefusedVersion is a version that is refused because of its signature, or because
// the origin has changed the version of a module.
type RefusedVersion struct {
	Version Version `json:"version"`
	// Key signed the version. It is the zero value if no key did.
	Key OriginKey `json:"key,omitzero"`
	// Pin is what the origin offers of a module now, and Bound what the version is
	// bound to.
	Pin   ModulePin `json:"pin,omitzero"`
	Bound ModulePin `json:"bound,omitzero"`
	At    time.Time `json:"at"`
}

// Decision is a decision of an operator.
type Decision struct {
	At time.Time `json:"at"`
	// By names the operator, as the audit trail does.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

const (
	// maxSeen is the maximum number of versions of a [MirrorOrigin]. It limits the
	// size of the item. A version that does not fit counts as seen just now, so
	// it never reaches a minimum age.
	maxSeen = 10_000
	// maxSeenText is the maximum length of all these versions together, in bytes,
	// because an origin can choose long ones.
	maxSeenText = 128 << 10
	// maxRefused is the maximum number of refused versions of a [MirrorOrigin].
	maxRefused = 20
	// maxPins is the maximum number of pins of a [MirrorOrigin]. A version that has
	// none is bound when it is mirrored.
	maxPins = 200
)

// See adds the versions that the origin lists now. published has all of them,
// with their publication times, which are zero times if the origin gives none.
// See reports whether anything is new.
//
// A version that the origin lists no longer stays, unless there is no room for
// others. Then See forgets it if it was seen after the first sight and nobody
// has admitted it, unless it is bound. It is new if the origin lists it again.
func (o *MirrorOrigin) See(published map[Version]time.Time, now time.Time) (changed bool) {
	now = now.UTC().Truncate(time.Second)
	seenAt := now
	if o.SeenAt.IsZero() {
		o.SeenAt, seenAt, changed = now, time.Time{}, true
	}
	changed = o.Learn(published) || changed
	known := make(map[Version]bool, len(o.Versions))
	for _, v := range o.Versions {
		known[v.Version] = true
	}
	var added []SeenVersion
	for n, at := range published {
		if !known[n] {
			added = append(added, SeenVersion{Version: n, PublishedAt: inSeconds(at), SeenAt: seenAt})
		}
	}
	if len(added) == 0 {
		return changed
	}
	slices.SortFunc(added, newest)
	all := o.Versions
	if !fit(append(slices.Clone(all), added...)) {
		all = slices.DeleteFunc(slices.Clone(all), func(v SeenVersion) bool {
			_, listed := published[v.Version]
			return !listed && v.Admitted == nil && !v.SeenAt.IsZero() && v.Pin.Source == ""
		})
		changed = changed || len(all) < len(o.Versions)
	}
	text := textLength(all)
	added = added[:max(0, min(len(added), maxSeen-len(all)))]
	added = slices.DeleteFunc(added, func(v SeenVersion) bool {
		length := len(v.Version.String())
		if text+length > maxSeenText {
			return true
		}
		text += length
		return false
	})
	o.Versions = append(slices.Clone(all), added...)
	slices.SortFunc(o.Versions, newest)
	return changed || len(added) > 0
}

// Learn adds the publication times that the origin gives now for versions that
// the mirror has seen. It reports whether anything is new.
//
// The age of a version that was seen after the first sight never counts from
// before then, so the origin can correct its time. The age of the others counts
// only from their publication time, so an earlier time does not replace it.
func (o *MirrorOrigin) Learn(published map[Version]time.Time) (changed bool) {
	var versions []SeenVersion
	for i, v := range o.Versions {
		at := inSeconds(published[v.Version])
		if at.IsZero() || at.Equal(v.PublishedAt) || v.SeenAt.IsZero() && at.Before(v.PublishedAt) {
			continue
		}
		if versions == nil {
			versions = slices.Clone(o.Versions)
		}
		versions[i].PublishedAt = at
	}
	if versions != nil {
		o.Versions = versions
	}
	return versions != nil
}

func inSeconds(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return at.UTC().Truncate(time.Second)
}

func newest(a, b SeenVersion) int { return CompareVersions(b.Version, a.Version) }

func textLength(all []SeenVersion) (length int) {
	for _, v := range all {
		length += len(v.Version.String())
	}
	return length
}

// fit reports whether versions fit into a [MirrorOrigin].
func fit(all []SeenVersion) bool { return len(all) <= maxSeen && textLength(all) <= maxSeenText }

// IsEmpty reports whether nothing is known of the origin.
func (o *MirrorOrigin) IsEmpty() bool {
	return o.SeenAt.IsZero() && len(o.Versions)+len(o.Keys)+len(o.Overruled)+len(o.Refused) == 0 && o.Unsigned == nil
}

// Seen returns the data about a version. ok reports whether the mirror has
// seen it, or an operator has admitted it.
func (o *MirrorOrigin) Seen(n Version) (v SeenVersion, ok bool) {
	at := o.index(n)
	if at < 0 {
		return SeenVersion{Version: n}, false
	}
	return o.Versions[at], true
}

func (o *MirrorOrigin) index(n Version) int {
	return slices.IndexFunc(o.Versions, func(v SeenVersion) bool { return v.Version == n })
}

// Admit records that an operator admits a version early.
func (o *MirrorOrigin) Admit(n Version, d Decision) {
	o.see(n, d.At)
	o.Versions = slices.Clone(o.Versions)
	o.Versions[o.index(n)].Admitted = &d
}

// Pin binds a version of a module, and forgets that it was refused. A refusal because of
// its files stays if p has no digest of them. Pin reports whether anything changed. A
// version that the mirror has not seen counts as seen at now.
//
// mirrored are the versions whose records have their pins. Pin forgets these, which is
// no change of its own.
func (o *MirrorOrigin) Pin(n Version, p ModulePin, now time.Time, mirrored ...Version) (changed bool) {
	remaining := slices.DeleteFunc(slices.Clone(o.Refused), func(r RefusedVersion) bool {
		return r.Version == n && (p.H1 != "" || r.Pin.Differs(p) != "")
	})
	changed = len(remaining) < len(o.Refused)
	o.Refused = remaining
	o.see(n, now)
	versions, pins := slices.Clone(o.Versions), 0
	for i := range versions {
		v := &versions[i]
		if v.Pin.Source != "" && slices.Contains(mirrored, v.Version) {
			v.Pin = ModulePin{}
		}
		if v.Pin.Source != "" {
			pins++
		}
	}
	v := &versions[o.index(n)]
	if v.Pin.Differs(p) == "" {
		p.H1 = cmp.Or(p.H1, v.Pin.H1)
	}
	isSame := (v.Pin.Accepted == nil) == (p.Accepted == nil) && (p.Accepted == nil || *v.Pin.Accepted == *p.Accepted)
	isNew := v.Pin.Differs(p) != "" || v.Pin.H1 != p.H1 || !isSame
	if isNew && !slices.Contains(mirrored, n) && (v.Pin.Source != "" || pins < maxPins) {
		v.Pin, changed = p, true
	}
	o.Versions = versions
	return changed
}

// Refusal returns the refusal of a version. ok reports whether there is one.
func (o *MirrorOrigin) Refusal(n Version) (r RefusedVersion, ok bool) {
	at := slices.IndexFunc(o.Refused, func(r RefusedVersion) bool { return r.Version == n })
	if at < 0 {
		return RefusedVersion{}, false
	}
	return o.Refused[at], true
}

// see adds a version that the mirror has not seen.
func (o *MirrorOrigin) see(n Version, now time.Time) {
	if o.index(n) < 0 {
		o.Versions = append(slices.Clone(o.Versions), SeenVersion{Version: n, SeenAt: now.UTC().Truncate(time.Second)})
		slices.SortFunc(o.Versions, newest)
	}
}

// Trusts reports whether a key is one of the trusted ones.
func (o *MirrorOrigin) Trusts(k OriginKey) bool {
	return slices.ContainsFunc(o.Keys, k.same)
}

func (k OriginKey) same(other OriginKey) bool { return k.Fingerprint == other.Fingerprint }

// Trust adds a key to the trusted ones, or adds the owner of k and the time of
// its first sight to a trusted one. It also forgets refusals because of the key.
// It reports whether anything changed.
func (o *MirrorOrigin) Trust(k OriginKey) (changed bool) {
	remaining := slices.DeleteFunc(slices.Clone(o.Refused), func(r RefusedVersion) bool { return r.Key.same(k) })
	changed = len(remaining) < len(o.Refused)
	o.Refused = remaining
	at := slices.IndexFunc(o.Keys, k.same)
	if at < 0 {
		o.Keys = append(slices.Clone(o.Keys), k)
		return true
	}
	before := o.Keys[at]
	merged := before
	merged.Owner = cmp.Or(before.Owner, k.Owner)
	if before.SeenAt.IsZero() {
		merged.SeenAt = k.SeenAt
	}
	if merged == before {
		return changed
	}
	o.Keys = slices.Clone(o.Keys)
	o.Keys[at] = merged
	return true
}

// Refuse records that a version was refused because of the key that signed it.
// It reports whether that is new.
//
// If there is no room, the refusals of the newest versions stay. Refuse then
// returns false for an older version, so that nobody records the same refusals
// again and again.
func (o *MirrorOrigin) Refuse(r RefusedVersion) (changed bool) {
	if slices.ContainsFunc(o.Refused, func(known RefusedVersion) bool {
		return known.Version == r.Version && known.Key.same(r.Key) && known.Pin == r.Pin
	}) {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(o.Refused), func(known RefusedVersion) bool { return known.Version == r.Version })
	if len(others) >= maxRefused {
		oldest := 0
		for i, known := range others {
			if CompareVersions(known.Version, others[oldest].Version) < 0 {
				oldest = i
			}
		}
		if CompareVersions(r.Version, others[oldest].Version) < 0 {
			return false
		}
		others = slices.Delete(others, oldest, oldest+1)
	}
	o.Refused = append([]RefusedVersion{r}, others...)
	return true
}

// Validate returns an error if o is not valid, or is about another provider.
func (o *MirrorOrigin) Validate(p MirrorAddress) error {
	if o.Address != p.String() {
		return fmt.Errorf("it is about %.100q", o.Address)
	}
	for i, v := range o.Versions {
		if i > 0 && CompareVersions(o.Versions[i-1].Version, v.Version) <= 0 {
			return fmt.Errorf("its versions are not sorted at %s", v.Version)
		}
	}
	keys := slices.Clone(o.Keys)
	for _, r := range o.Refused {
		if r.Key != (OriginKey{}) { // it is not the refusal of a version without a signature
			keys = append(keys, r.Key)
		}
	}
	for _, k := range keys {
		// The ID is the end of the fingerprint of a key of version 4, and the
		// beginning of a later one.
		ofID := strings.HasSuffix(k.Fingerprint, k.ID) || strings.HasPrefix(k.Fingerprint, k.ID)
		if k.ID == "" || !ofID {
			return fmt.Errorf("it has an invalid key %.100q", k.ID)
		}
	}
	return nil
}
