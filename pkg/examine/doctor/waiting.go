package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// waiting has the versions of the mirrored address that Larder's mirror has seen
// and does not offer.
type waiting struct {
	request, host string
	// versions begin with the one that can be mirrored first. See
	// [compareWaiting].
	versions []protocol.MirroredVersion
	// denied is why the policy of the mirror denies further versions. It is empty
	// if the policy allows the provider.
	denied string
	// pull describes how clients make the mirror fetch versions. It is nil if they
	// cannot. onRequest are those versions.
	pull      *protocol.MirroredPull
	onRequest []protocol.MirroredVersion
	// needsPlatforms is [protocol.MirroredProvider.NeedsPlatforms].
	needsPlatforms bool
}

// maxWaiting is the number of versions with a step of their own, if there is more
// than one other.
const maxWaiting = 3

// waiting requests the versions that Larder's mirror does not offer. It returns
// none for any other mirror. Nothing follows from a failure, because clients do
// not send the request.
func (e *examination) waiting(ctx context.Context, base *url.URL) (w waiting) {
	if !e.Mirror.IsModule() && base.Path != usualMirror {
		return w
	}
	c, err := e.credentialOfMirror(ctx, base)
	if err != nil {
		return w
	}
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/v1/" + e.Mirror.Path()}
	a, err := e.send(ctx, u, c)
	var d protocol.MirroredProvider
	if err != nil || a.status != http.StatusOK || !a.isJSON() || json.Unmarshal(a.body, &d) != nil ||
		(registry.MirrorAddress{Hostname: d.Hostname, Namespace: d.Namespace, Name: d.Name, System: d.Provider}) != *e.Mirror {
		return w
	}
	w.request, w.host, w.denied, w.pull = a.request, base.Host, e.quote(d.Denied), d.Pull
	w.needsPlatforms = d.NeedsPlatforms()
	for _, v := range d.Versions {
		if admission.State(v.State).IsOnRequest() && w.pull != nil {
			w.onRequest = append(w.onRequest, v)
		}
		// A step has the key in a command, so nothing but a key is accepted.
		isKey := strings.Trim(v.SigningKey, "0123456789ABCDEF") == ""
		if v.State == string(admission.TooNew) || v.State == string(admission.Refused) && isKey {
			w.versions = append(w.versions, v)
		}
	}
	slices.SortFunc(w.versions, compareWaiting)
	return w
}

// compareWaiting sorts pre-releases last, since clients do not choose them
// by themselves. The others begin with those that are too new, by the time from
// which they can be mirrored.
func compareWaiting(a, b protocol.MirroredVersion) int {
	later := func(v protocol.MirroredVersion) (rank int) {
		if v.Version.Prerelease != "" {
			rank += 2
		}
		if v.State == string(admission.Refused) {
			rank++
		}
		return rank
	}
	return cmp.Or(cmp.Compare(later(a), later(b)), a.AvailableAt.Compare(b.AvailableAt),
		registry.CompareVersions(b.Version, a.Version))
}

// askForRule is what helps if the policy of a mirror denies a provider.
const askForRule = "have an operator change the mirror policy"

// warnWaiting adds a step for versions that are newer than the newest one that the
// mirror offers.
func (e *examination) warnWaiting(w waiting, newest registry.Version) {
	const name = "mirror versions"
	if w.denied != "" {
		e.warn(name, w.request,
			fmt.Sprintf("%s is the newest version of %s, and no further one is mirrored: %s", newest, e.Mirror, w.denied),
			oneOf([]string{"use " + newest.String(), askForRule}))
		return
	}
	relevant := slices.DeleteFunc(w.versions, func(v protocol.MirroredVersion) bool {
		return registry.CompareVersions(v.Version, newest) <= 0
	})
	for i, v := range relevant {
		if i == maxWaiting && len(relevant) > maxWaiting+1 {
			e.warn(name, w.request, fmt.Sprintf("%d more versions are too new or refused", len(relevant)-i),
				fmt.Sprintf("run `larder list %s --registry https://%s` to see them", e.Mirror, e.quote(w.host)))
			return
		}
		why, options := e.explainWaiting(w, v)
		e.warn(name, w.request,
			fmt.Sprintf("%s; meanwhile clients get %s, and fail if they require %s", why, newest, v.Version),
			oneOf(append([]string{"use " + newest.String()}, options...)))
	}
}

// explainWaiting returns why the mirror does not offer a version, and what can be
// done about it.
func (e *examination) explainWaiting(w waiting, v protocol.MirroredVersion) (why string, options []string) {
	switch {
	case v.ChangedTo != registry.ModulePin{}:
		return fmt.Sprintf("%s is refused: %s", v.Version, e.quote(v.Reason)), []string{
			fmt.Sprintf("have an operator find out why, and then run `larder mirror admit %s %s --reason …`", e.Mirror, v.Version),
		}
	case v.State == string(admission.TooNew):
		at := v.AvailableAt.UTC().Add(time.Minute - 1).Format("2006-01-02 15:04 MST")
		platforms := ""
		if w.needsPlatforms {
			platforms = " --platform PLATFORMS"
		}
		return fmt.Sprintf("%s is too new: it can be mirrored from %s", v.Version, at), []string{
			"wait",
			fmt.Sprintf("have an operator run `larder mirror admit %s %s --reason …%s`", e.Mirror, v.Version, platforms),
		}
	case v.KeyDenied && v.SigningKey == "":
		return v.Version.String() + " is refused: it has no signature, and the mirror policy requires one",
			[]string{askForRule}
	case v.KeyDenied:
		return fmt.Sprintf("%s is refused: the mirror policy does not allow key %s, which signed it", v.Version, v.SigningKey),
			[]string{askForRule}
	case v.SigningKey == "":
		return v.Version.String() + " is refused until an operator accepts that it has no signature", []string{
			fmt.Sprintf("have an operator find out why, and then run `larder mirror trust %s unsigned`", e.Mirror),
		}
	}
	return fmt.Sprintf("%s is refused until an operator trusts key %s, which signed it", v.Version, v.SigningKey), []string{
		fmt.Sprintf("have an operator verify the key, and then run `larder mirror trust %s %s`", e.Mirror, v.SigningKey),
	}
}

func oneOf(options []string) string {
	last := len(options) - 1
	if last == 0 {
		return options[0]
	}
	return strings.Join(options[:last], ", ") + ", or " + options[last]
}
