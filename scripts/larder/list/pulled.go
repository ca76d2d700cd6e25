package list

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// printPulled prints how clients make the mirror fetch versions that it lacks, and
// what the mirror found at the origin.
func printPulled(p output.Page, pull protocol.MirroredPull, kind string, versions []protocol.MirroredVersion) {
	from := "its origin"
	if pull.Upstream != "" {
		from = printable.Escape(pull.Upstream)
	}
	if pull.Mode == registry.PullOpen {
		p.Println("If a version is not mirrored, clients get it from %s until it is copied (pull = %q).", from, pull.Mode)
	} else {
		p.Println("If a version is not mirrored, clients wait until it is copied from %s (pull = %q).", from, pull.Mode)
	}
	var onRequest []registry.Version
	explained := make(map[registry.Version]bool)
	for _, v := range versions {
		if v.State == string(admission.OnRequest) {
			onRequest = append(onRequest, v.Version)
		} else {
			explained[v.Version] = true
		}
	}
	pending := slices.DeleteFunc(slices.Clone(pull.Pending), func(v registry.Version) bool { return explained[v] })
	if n := len(onRequest); n > 0 {
		p.Println("%s on request: %s", english.Plural(n, "version", ""), admission.FirstOf(onRequest, len(onRequest)))
	}
	if len(pending) > 0 {
		p.Println("Requested, but not copied yet: %s", admission.FirstOf(pending, len(pending)))
	}
	for _, v := range versions {
		switch v.State {
		case string(admission.Failed):
			text := fmt.Sprintf("%s could not be copied: %s", v.Version, printable.Escape(v.Reason))
			if !v.RetryAt.IsZero() {
				text += "; the mirror can try again after " + output.FormatFrom(v.RetryAt)
			}
			p.Println("%s", text)
		case string(admission.Copying):
			p.Println("%s is being copied.", v.Version)
		}
	}
	switch {
	case pull.FoundNone:
		p.Println("The mirror has checked the origin: %s", printable.Escape(pull.Problem))
	case pull.Problem != "":
		p.Println("The mirror could not check the origin: %s", printable.Escape(pull.Problem))
	}
	if pull.Problem != "" && !pull.RetryAt.IsZero() {
		p.Println("The mirror tries again at the first request of a client after %s, or at night.", output.FormatFrom(pull.RetryAt))
	}
	p.Println("%s", lastCheck(pull, kind))
	switch {
	case pull.Outdated:
		p.Println("The policy or the mirror has changed since the last check. The mirror checks again at the next request of " +
			"a client, so this list may change.")
	case pull.Problem == "" && pull.CheckedAt.IsZero():
		p.Println("The mirror checks the origin at the next request of a client.")
	}
}

// lastCheck returns when the mirror last checked the origin with success, and when
// a client last requested the address, which is of a kind.
func lastCheck(pull protocol.MirroredPull, kind string) string {
	var parts []string
	switch {
	case !pull.CheckedAt.IsZero():
		parts = append(parts, "The mirror last checked the origin "+output.FormatTime(pull.CheckedAt))
	case pull.FoundNone:
		parts = append(parts, "Until the origin has one, clients see only mirrored versions")
	case pull.Problem != "":
		parts = append(parts, "Until a check succeeds, clients see only mirrored versions")
	}
	switch {
	case !pull.RequestedAt.IsZero():
		parts = append(parts, "a client last requested the "+kind+" "+output.FormatTime(pull.RequestedAt))
	case pull.CheckedAt.IsZero():
		parts = append(parts, "no client has requested the "+kind+" in the last 30 days")
	}
	text := strings.Join(parts, "; ")
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
