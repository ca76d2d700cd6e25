package doctor

import (
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// explainPull adds steps about the newest version that the mirror lists, if
// clients make the mirror fetch versions.
func (e *examination) explainPull(w waiting, newest registry.Version) {
	const name = "mirror versions"
	if w.pull == nil {
		return
	}
	if w.pull.Problem != "" {
		result := "the latest check of the origin failed, so the mirror lists the versions of an earlier one: "
		if w.pull.FoundNone {
			result = "the mirror lists only mirrored versions: "
		}
		e.warn(name, w.request, result+e.quote(w.pull.Problem), "if a version is missing, "+e.fixCheck(w.pull))
	}
	if !slices.ContainsFunc(w.onRequest, isVersion(newest)) {
		return
	}
	how := "clients get it when it is copied"
	if w.pull.Mode == registry.PullOpen {
		how = "clients get it from its origin until it is copied"
	}
	e.ok(name, w.request, fmt.Sprintf("%s is not mirrored; the mirror fetches it on request, and %s", newest, how))
}

// explainMissing returns why the mirror has no packages or no archive of a version that
// it lists, and what to do. w is read after the request for them.
func (e *examination) explainMissing(w waiting, v registry.Version) (why, fix string) {
	none := "it has no packages"
	if e.Mirror.IsModule() {
		none = "it has no archive"
	}
	if i := slices.IndexFunc(w.versions, isVersion(v)); i >= 0 {
		why, options := e.explainWaiting(w, w.versions[i])
		return none + ": " + why, oneOf(options)
	}
	i := slices.IndexFunc(w.onRequest, isVersion(v))
	if w.denied != "" {
		return none + ", and the mirror fetches none: " + w.denied, askForRule
	}
	switch {
	case i < 0:
		return none, "mirror the version again"
	case w.onRequest[i].State == string(admission.Failed):
		return fmt.Sprintf("%s: the mirror cannot fetch %s, because %s", none, v, e.quote(w.onRequest[i].Reason)),
			e.fixOrigin(v.String())
	case w.onRequest[i].State == string(admission.Copying), slices.ContainsFunc(w.pull.Pending, v.Same):
		return fmt.Sprintf("%s yet: %s is not mirrored, and its copy is not complete", none, v),
			"wait a few minutes, and run this command again; if nothing changes, check the logs of the mirror"
	}
	return fmt.Sprintf("%s: the mirror did not fetch %s in time", none, v),
		"run this command again; if nothing changes, check the logs of the mirror"
}

// fixCheck returns what to do if the latest check of the origin has a problem.
func (e *examination) fixCheck(p *protocol.MirroredPull) string {
	if p.FoundNone {
		return "wait, or have an operator remove the cause" // `larder mirror add` finds no version either
	}
	return e.fixOrigin("")
}

// fixOrigin returns what to do if the mirror cannot fetch a version. If version is
// empty, that is any version.
func (e *examination) fixOrigin(version string) string {
	return "run this command again later; if nothing changes, have an operator remove the cause, or run `" +
		e.addCommand(version) + "`"
}

func isVersion(n registry.Version) func(protocol.MirroredVersion) bool {
	return func(v protocol.MirroredVersion) bool { return v.Version.Same(n) }
}
