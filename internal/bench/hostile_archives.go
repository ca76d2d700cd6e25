package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

// The addresses of hostile archives and releases.
var (
	evilModule   = registry.Module{Namespace: "acme", Name: "evil", System: "null"}
	evilProvider = registry.Provider{Namespace: "acme", Type: "evil"}
)

// archives publishes hostile modules and releases through the server.
func (a *attacked) archives(ctx context.Context) error {
	scopes := []string{"read:**", "publish:modules/acme/**", "publish:providers/acme/**"}
	token, err := a.credential(ctx, a.server, "archives", scopes...)
	if err != nil {
		return err
	}
	signers, err := a.signers(ctx)
	if err != nil {
		return err
	}
	sender := &attacker{v: a.server, token: token}
	modules := archiveTally{name: "modules"}
	for i, m := range spread(hostile.Modules(), a.n.attacks) {
		v := fmt.Sprintf("0.0.%d", i)
		r := sender.publish(ctx, evilModule.Path(), v, nil, sentFile{evilModule.Name + ".tar.gz", m.Make()})
		modules.count(a, m.Name, r)
		if err := a.afterArchive(ctx, sender, evilModule.Path(), v, r); err != nil {
			return err
		}
	}
	releases := archiveTally{name: "provider releases"}
	for i, release := range spread(hostile.Releases(), a.n.attacks) {
		v := fmt.Sprintf("0.0.%d", i)
		files, err := release.Make(evilProvider.Type, v, signers)
		if err != nil {
			return fmt.Errorf("%s: %w", release.Name, err)
		}
		var sent []sentFile
		for name, data := range files {
			sent = append(sent, sentFile{name, data})
		}
		slices.SortFunc(sent, func(a, b sentFile) int { return len(a.name) - len(b.name) })
		r := sender.publish(ctx, evilProvider.Path(), v, []string{"6.0"}, sent...)
		releases.count(a, release.Name, r)
		if err := a.afterArchive(ctx, sender, evilProvider.Path(), v, r); err != nil {
			return err
		}
	}
	a.presigned(sender.urls...)
	if modules.visible, err = sender.visible(ctx, "/v1/modules/"+evilModule.String()+"/versions"); err != nil {
		return err
	}
	if releases.visible, err = sender.visible(ctx, "/v1/providers/"+evilProvider.String()+"/versions"); err != nil {
		return err
	}
	a.found.tables = append(a.found.tables, table{
		title: "archives, larder serve",
		columns: []column{
			{"sent", ""}, {"refused with a reason", ""}, {"published", ""}, {"other answers", ""}, {"ended it", ""},
			{"visible then", ""}, {"slowest", "s"},
		},
		rows: []row{modules.row(), releases.row()},
	})
	return nil
}

// signers creates keys, two of which the namespace acme trusts.
func (a *attacked) signers(ctx context.Context) (hostile.Signers, error) {
	var s hostile.Signers
	for _, one := range []struct {
		private *[]byte
		expires time.Duration
		trusted bool
	}{{&s.Good, 0, true}, {&s.Expired, -time.Hour, true}, {&s.Foreign, 0, false}} {
		key, err := keys.NewSigningKey("RSA 2048", one.expires)
		if err != nil {
			return s, err
		}
		*one.private = key.Private
		if !one.trusted {
			continue
		}
		public, err := signing.ParseKey(key.Public, time.Now().Add(2*min(one.expires, 0)))
		if err != nil {
			return s, err
		}
		if _, err := a.server.catalog().AddSigningKey(ctx, "acme", public); err != nil {
			return s, err
		}
	}
	return s, nil
}

// afterArchive deletes an upload after it was rejected. It restarts the server
// if that has exited or is still busy with the upload.
func (a *attacked) afterArchive(ctx context.Context, sender *attacker, path, version string, r reply) error {
	if r.status == 0 || a.server.ended() {
		a.server.kill()
		if err := a.server.start(ctx); err != nil {
			return err
		}
	}
	if !r.accepted() && r.upload != "" {
		sender.giveUp(ctx, path, version, r.upload)
	}
	return nil
}

// archiveTally counts the outcomes of hostile archives.
type archiveTally struct {
	name                                          string
	sent, refused, accepted, other, died, visible int
	slowest                                       time.Duration
}

func (t *archiveTally) count(a *attacked, what string, r reply) {
	t.sent++
	t.slowest = max(t.slowest, r.took)
	switch {
	case r.refused():
		t.refused++
		return
	case r.accepted():
		t.accepted++
	case a.server.ended():
		t.died++
	default:
		t.other++
	}
	a.note(fmt.Sprintf("%s: %s: %.200s", t.name, what, r))
}

func (t *archiveTally) row() row {
	return row{t.name, []*figure{
		is(float64(t.sent)), is(float64(t.refused)), atMost(float64(t.accepted), 0), atMost(float64(t.other), 0),
		atMost(float64(t.died), 0), atMost(float64(t.visible), 0), is(t.slowest.Seconds()),
	}}
}

// visible returns the number of versions in a listing. It is 0 if there is
// none.
func (a *attacker) visible(ctx context.Context, path string) (int, error) {
	var listing json.RawMessage
	r := a.do(ctx, "list", http.MethodGet, path, nil, &listing)
	if r.status == http.StatusNotFound {
		return 0, nil
	}
	if !r.accepted() {
		return 0, fmt.Errorf("cannot read the listing: %s", r)
	}
	var found struct {
		Modules  []listedVersions
		Versions []json.RawMessage
	}
	if err := json.Unmarshal(listing, &found); err != nil {
		return 0, err
	}
	n := len(found.Versions)
	for _, m := range found.Modules {
		n += len(m.Versions)
	}
	return n, nil
}
