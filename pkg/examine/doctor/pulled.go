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
		e.warn(name, w.request,
			"the latest check of the origin failed, so the mirror lists the versions of an earlier one: "+
				e.quote(w.pull.Problem),
			"if a version is missing, "+e.fixOrigin(""))
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

// explainMissing returns why the mirror has no packages of a version that it
// lists, and what to do. w is read after the request for the packages.
func (e *examination) explainMissing(w waiting, v registry.Version) (why, fix string) {
	if i := slices.IndexFunc(w.versions, isVersion(v)); i >= 0 {
		why, options := e.explainWaiting(w.versions[i])
		return "it has no packages: " + why, oneOf(options)
	}
	i := slices.IndexFunc(w.onRequest, isVersion(v))
	if w.denied != "" {
		return "it has no packages, and the mirror fetches none: " + w.denied, askForRule
	}
	switch {
	case i < 0:
		return "it has no packages", "mirror the version again"
	case w.onRequest[i].State == string(admission.Failed):
		return fmt.Sprintf("it has no packages: the mirror cannot fetch %s, because %s", v, e.quote(w.onRequest[i].Reason)),
			e.fixOrigin(v.String())
	case w.onRequest[i].State == string(admission.Copying), slices.ContainsFunc(w.pull.Pending, v.Same):
		return fmt.Sprintf("it has no packages yet: %s is not mirrored, and its copy is not complete", v),
			"wait a few minutes, and run this command again; if nothing changes, check the logs of the mirror"
	}
	return fmt.Sprintf("it has no packages: the mirror did not fetch %s in time", v),
		"run this command again; if nothing changes, check the logs of the mirror"
}

// fixOrigin returns what to do if the mirror cannot fetch a version. If version is
// empty, that is any version.
func (e *examination) fixOrigin(version string) string {
	command := "larder mirror add " + e.Mirror.String()
	if version != "" {
		command += " --version " + version
	}
	return fmt.Sprintf("run this command again later; if nothing changes, have an operator remove the cause, "+
		"or run `%s --platform %s`", command, e.Platform)
}

func isVersion(n registry.Version) func(protocol.MirroredVersion) bool {
	return func(v protocol.MirroredVersion) bool { return v.Version.Same(n) }
}
