package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/mirror"
)

// withdrawScenario withdraws versions of a module, a provider, a mirrored provider
// and a mirrored module. Its namespace is new each time, since withdrawn version numbers
// cannot be used again.
func withdrawScenario(ctx context.Context, r *Registry) error {
	namespace := fmt.Sprintf("%s-%d", r.Namespace, time.Now().Unix())
	module, provider, mirrored := namespace+"/gone/null", namespace+"/note", "gone.example.com/"+namespace+"/note"
	for _, v := range []string{"1.0.0", "1.1.0"} {
		if err := r.publishModule(ctx, module, v, "version "+v); err != nil {
			return err
		}
	}
	if err := r.fillProviders(ctx, namespace, mirrored); err != nil {
		return err
	}
	if err := r.installModule(ctx, module, "1.0.0", "version 1.0.0"); err != nil {
		return err
	}
	if err := r.counted(ctx, module, "1.0.0"); err != nil {
		return err
	}
	platform := strings.Replace(clients.Platform(), "_", "/", 1)
	gone := []string{
		"/v1/modules/" + module + "/1.0.0/download", "/v1/modules/" + module + "/1.0.0/files/main.tf",
		"/v1/providers/" + provider + "/versions",
		"/v1/providers/" + provider + "/1.0.0/download/" + platform, "/v1/mirror/" + mirrored + "/index.json",
	}
	addresses := []string{module, provider, mirrored}
	if r.Origin != nil && r.Origin.namespace != "" { // clients have fetched modules
		inner := r.Origin.mirroredModule(publicHosts["tofu"], "inner")
		addresses = append(addresses, inner)
		gone = append(gone, mirror.ModulesPath+inner+"/1.0.0/download")
	}
	for _, address := range addresses {
		if err := r.Withdraw(ctx, address, "1.0.0", "--reason", "rehearsed"); err != nil {
			return err
		}
	}
	token, err := r.newToken(ctx, "withdrawn", "read:**")
	if err != nil {
		return err
	}
	for _, path := range gone {
		if err := r.get(ctx, path, token, http.StatusNotFound); err != nil {
			return err
		}
	}
	if err := r.publishModule(ctx, module, "1.0.0", "version 1.0.0"); err == nil || !strings.Contains(err.Error(),
		"rehearsed") {
		return fmt.Errorf("publishing a withdrawn version again is not rejected: %w", err)
	}
	return r.installModule(ctx, module, "~> 1.0", "version 1.1.0")
}

// counted waits until the downloads of a version by all clients are counted.
// CloudWatch delivers the functions' log lines with a delay.
func (r *Registry) counted(ctx context.Context, address, version string) error {
	const attempts, wait = 20, 10 * time.Second
	for attempt := 1; ; attempt++ {
		if r.Deliver != nil {
			if err := r.Deliver(ctx); err != nil {
				return err
			}
		}
		text, err := r.Larder(ctx, "usage", address, version, "--since", "1h", "--json")
		if err != nil {
			return err
		}
		var counted struct {
			Downloads []struct {
				Caller string
				Count  int
			}
		}
		if err := json.Unmarshal([]byte(text), &counted); err != nil {
			return err
		}
		n := 0
		for _, d := range counted.Downloads {
			n += d.Count
		}
		switch {
		case n >= len(r.Clients) && len(counted.Downloads) == 1 && strings.Contains(counted.Downloads[0].Caller,
			r.Namespace+".clients"):
			return nil
		case attempt == attempts:
			return fmt.Errorf("%d clients have downloaded %s %s, and what is counted is\n%s", len(r.Clients), address,
				version, text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
