package admission

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Origin returns the host where the origin of a provider is. discovers reports whether
// discovery finds its provider registry protocol.
func Origin(rule registry.MirrorRule, p registry.MirrorAddress) (host string, discovers bool) {
	if u, err := url.Parse(rule.Upstream); err == nil && u.Host != "" {
		return u.Host, strings.Trim(u.Path, "/") == ""
	}
	return p.Hostname, true
}

// onRequest returns the versions that clients can make the mirror fetch, and
// that are perhaps mirrored already. A cached index that cannot be read has none.
func onRequest(rule registry.MirrorRule, found registry.PulledAddress) []registry.Version {
	if rule.Pull == "" || len(found.Index) == 0 {
		return nil
	}
	index, err := protocol.Decode[protocol.MirrorListing](found.Index)
	if err != nil {
		return nil
	}
	return index
}

// PullOf describes how clients make the mirror fetch versions of a provider that
// it lacks. It returns nil if the policy does not let them. statuses are those of
// [StatusesOf].
func PullOf(policy *registry.MirrorPolicy, p registry.MirrorAddress, stored Stored,
	statuses []Status) *protocol.MirroredPull {
	rule, err := RuleOf(policy, p)
	if err != nil || rule.Pull == "" {
		return nil
	}
	found := stored.Pulled
	pull := &protocol.MirroredPull{
		Mode: rule.Pull, CheckedAt: found.CheckedAt, Problem: found.Problem, FoundNone: found.FoundNone,
		RetryAt: found.RetryAt, RequestedAt: found.RequestedAt, Pending: []registry.Version{},
	}
	// This process may have read an earlier policy than the one of the check.
	if found.HasFindings() && found.PolicySetAt.Before(policy.SetAt) {
		pull.Outdated, pull.RetryAt = true, time.Time{}
	}
	if host, _ := Origin(rule, p); host != p.Hostname {
		pull.Upstream = host
	}
	for _, s := range statuses {
		if s.State.IsOnRequest() {
			pull.OnRequest++
		}
	}
	for _, n := range found.Pending {
		if !slices.ContainsFunc(stored.Listed, n.Same) && !slices.ContainsFunc(stored.Excluded, n.Same) {
			pull.Pending = append(pull.Pending, n)
		}
	}
	return pull
}

// MaxShown is the number of versions on request that people see of a provider.
const MaxShown = 10

// FirstOf returns at most MaxShown versions as text, and how many more of a total
// there are.
func FirstOf(versions []registry.Version, total int) string {
	names := make([]string, min(len(versions), MaxShown))
	for i := range names {
		names[i] = versions[i].String()
	}
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// VersionsToExplain returns the versions on request that clients requested, and
// the newest ones. For these, a caller reads why the mirror could not fetch them.
func VersionsToExplain(pull *protocol.MirroredPull, statuses []Status) (versions []registry.Version) {
	if pull == nil {
		return nil
	}
	newest := 0
	for _, s := range statuses {
		if !s.State.IsOnRequest() {
			continue
		}
		if newest++; newest <= MaxShown || slices.ContainsFunc(pull.Pending, s.Version.Same) {
			versions = append(versions, s.Version)
		}
	}
	return versions
}
