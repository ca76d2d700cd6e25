package main

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/internal/testkit/issuers"
)

// unchecked builds the command line and the publish function without the check
// of configuration.
func unchecked(t *testing.T) (larder, publish string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("LEFT OUT: functions are built for Linux")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/",
		"-ldflags", "-X github.com/larder-registry/larder/pkg/safehcl.unchecked=yes",
		"./scripts/larder", "./functions/publish")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	return filepath.Join(dir, "larder"), filepath.Join(dir, "publish")
}

// TestIsolation publishes modules that crash their parser, to builds that do
// not check configuration first. They must be rejected, and the server and the
// function must survive.
func TestIsolation(t *testing.T) {
	larder, publish := unchecked(t)
	issuer, err := issuers.StartCI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	server, err := newServerVictim(t.Context(), larder, t.TempDir(), issuer.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.close)
	stack, err := startStack(t.Context(), map[string]string{"publish": publish}, t.TempDir(), issuer.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.close)
	function, err := newFunctionVictim(t.Context(), stack)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(function.kill)
	for name, v := range map[string]victim{"larder serve": server, "publish": function} {
		t.Run(name, func(t *testing.T) { surviveModules(t, v) })
	}
}

// surviveModules publishes modules to a victim that does not check them.
func surviveModules(t *testing.T, v victim) {
	t.Helper()
	token, err := newCredential(t.Context(), v.catalog(), "attacker", "publish:modules/acme/**")
	if err != nil {
		t.Fatal(err)
	}
	sender := &attacker{v: v, token: token}
	send := func(version, text string) reply {
		t.Helper()
		packed, err := moduleOf(hostile.HCL{Make: func(int) []byte { return []byte(text) }}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return sender.inspected(t.Context(), "modules/acme/attack/null", version, nil,
			[]sentFile{{"attack.tar.gz", packed}})
	}
	for version, text := range map[string]string{
		"0.0.1": "x = 1 " + strings.Repeat(")", 140_010) + "\ny = " + strings.Repeat("(", 140_000),
		"0.0.2": strings.Repeat("a{\nb=}\n", 42_000),
		"0.0.3": strings.Repeat("a{\na]\n", 48_000),
	} {
		r := send(version, text)
		if !r.refused() || !strings.Contains(r.text, "inspection") { // it crashed or was stopped
			t.Errorf("%s: %s; want a rejection because the inspection died", version, r)
		}
		if v.ended() {
			t.Fatalf("the process exited after %s:\n%s", version, v.logged())
		}
		again := sender.inspectFile(t.Context(), "modules/acme/attack/null", version, r.upload, 0)
		if again.status != http.StatusBadRequest || again.text != r.text {
			t.Errorf("%s, second request: %s; want %s", version, again, r)
		}
	}
	if r := send("1.0.0", "output \"it\" { value = 1 }\n"); !r.accepted() {
		t.Errorf("a good module after these: %s", r)
	}
}
