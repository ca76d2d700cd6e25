package main

import (
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// pulled prints how clients make the mirror fetch versions that it lacks, and
// what the mirror found at the origin.
func (p page) pulled(pull protocol.MirroredPull, versions []protocol.MirroredVersion) {
	from := "its origin"
	if pull.Upstream != "" {
		from = printable.Escape(pull.Upstream)
	}
	if pull.Mode == registry.PullOpen {
		p.println("If a version is not mirrored, clients get it from %s until it is copied (pull = %q).", from, pull.Mode)
	} else {
		p.println("If a version is not mirrored, clients wait until it is copied from %s (pull = %q).", from, pull.Mode)
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
		p.println("%s on request: %s", english.Plural(n, "version", ""), admission.FirstOf(onRequest, len(onRequest)))
	}
	if len(pending) > 0 {
		p.println("Requested, but not copied yet: %s", admission.FirstOf(pending, len(pending)))
	}
	for _, v := range versions {
		switch v.State {
		case string(admission.Failed):
			p.println("%s could not be copied: %s", v.Version, printable.Escape(v.Reason))
		case string(admission.Copying):
			p.println("%s is being copied.", v.Version)
		}
	}
	if pull.Problem != "" {
		p.println("The mirror could not check the origin: %s", printable.Escape(pull.Problem))
	}
	p.println("%s", checkText(pull))
}

// checkText returns when the mirror last checked the origin, and when a client
// last requested the provider.
func checkText(pull protocol.MirroredPull) string {
	var parts []string
	if pull.CheckedAt.IsZero() {
		parts = append(parts, "The mirror has not read the origin successfully yet")
	} else {
		parts = append(parts, "The mirror last checked the origin "+formatTime(pull.CheckedAt))
	}
	if !pull.RequestedAt.IsZero() {
		parts = append(parts, "a client last requested the provider "+formatTime(pull.RequestedAt))
	}
	return strings.Join(parts, "; ") + "."
}
