package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// installs writes a configuration that uses a version of a module.
func installs(t *testing.T, host, version string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(
		t,
		dir,
		map[string]string{
			"main.tf": fmt.Sprintf(
				"module \"vpc\" {\n  source  = %q\n  version = %q\n}\n",
				host+"/acme/vpc/aws",
				version,
			),
		},
	)
	return dir
}

// Clients cannot install withdrawn versions, and can install all others.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	store := []string{"--store", "dir:" + s.data}
	run := func(args ...string) string { t.Helper(); return larder(t, append(args, store...)...) }
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, s.data, "acme/vpc/aws", v, withOutput(v))
	}
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	run("publish", "provider", releaseOf(t, key), "acme/note")
	folder := t.TempDir()
	const mirrored = "registry.example.com/acme/note"
	if err := clients.WriteMirrorFolder(releaseOf(t, key), filepath.Join(folder, mirrored)); err != nil {
		t.Fatal(err)
	}
	run("mirror", "import", folder)

	withClients := func(name string, use func(t *testing.T, c clients.Session, vpc10, vpc11, provider, mirror string)) {
		t.Run(name, func(t *testing.T) {
			clients.Each(t, func(t *testing.T, c clients.Client) {
				provider := note(t, s.Host+"/acme/note", "1.0.0", filepath.Join(t.TempDir(), "note.txt"))
				use(
					t,
					session(t, c, s),
					installs(t, s.Host, "1.0.0"),
					installs(t, s.Host, "~> 1.0"),
					provider,
					need(t, mirrored+" 1.0.0"),
				)
			})
		})
	}
	alone := func(c clients.Session) clients.Session {
		c.Config = installation(s.mirrorURL(), "")
		return c
	}
	withClients("before", func(t *testing.T, c clients.Session, vpc10, vpc11, provider, mirror string) {
		for _, dir := range []string{vpc10, vpc11, provider} {
			inits(t, c, dir)
		}
		inits(t, alone(c), mirror)
	})

	run("withdraw", "acme/vpc/aws", "1.0.0", "--reason", "it has a key", "--yes")
	run("withdraw", "acme/note", "1.0.0", "--reason", "it has a key", "--yes")
	run("withdraw", mirrored, "1.0.0", "--reason", "it has a key", "--yes")
	withClients("after", func(t *testing.T, c clients.Session, vpc10, vpc11, provider, mirror string) {
		initFails(t, c, vpc10, "There is no available version of module")
		inits(t, c, vpc11)
		initFails(t, c, provider, "acme/note")
		initFails(t, alone(c), mirror, mirrored)
	})
	// Its key can be removed without --force, because no version needs it.
	id := regexp.MustCompile(`(?m)^[0-9A-F]{16}`).FindString(run("key", "list", "acme"))
	run("key", "remove", "acme", id)
	var stderr bytes.Buffer
	again := exec.CommandContext(t.Context(), "larder", append([]string{"mirror", "import", folder}, store...)...)
	again.Stderr = &stderr
	_ = again.Run()
	if code := again.ProcessState.ExitCode(); code != failure.ExitExists {
		t.Errorf("mirror import: exit code %d, want %d\n%s", code, failure.ExitExists, &stderr)
	}
	texts := golden.New(t)
	texts.Text(t, "$ larder mirror import DIR\n"+errorText(stderr.String()))
	deprecate := []string{"deprecate", "acme/note", "--message", "x"}
	out := fails(t, failure.ExitNotFound, append(deprecate, store...)...)
	texts.Text(t, "$ larder "+quotedAll(deprecate)+"\n"+errorText(out))
	// A publish through the registry fails too.
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("1.0.0"))
	p := s.publisher(t, credentials(s.Host, token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")))
	p.texts = texts
	p.run(
		t,
		failure.ExitExists,
		[]string{"1.0.0", "it has a key"},
		"publish",
		"module",
		dir,
		"acme/vpc/aws",
		"1.0.0",
	)
	if _, out := verifies(t, s.data, 0); !strings.Contains(out, "0 faults, 0 repaired, 0 notes") {
		t.Error(out)
	}
}

// protected is a proxy for S3 that denies deleting objects unless allowed is
// set. If block is set, each DELETE blocks until the client gives up, and is
// sent to blocked.
type protected struct {
	URL            string
	allowed, block atomic.Bool
	blocked        chan struct{}
}

func protect(t *testing.T, to string) *protected {
	t.Helper()
	p := &protected{blocked: make(chan struct{}, 1)}
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && p.block.Load() {
			p.blocked <- struct{}{}
			<-r.Context().Done()
			return
		}
		if r.Method == http.MethodDelete && !p.allowed.Load() {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// On a stack, withdraw prints who has downloaded the version and prompts. It
// withdraws the version even without permission to delete objects. With it, a
// second run deletes them.
func TestWithdrawOnStack(t *testing.T) {
	t.Parallel()
	env := onStack(t, downloaded(time.Hour, "1.0.0", "ci"), downloaded(2*time.Hour, "1.0.0", "ci"),
		downloaded(time.Hour, "1.0.0", "ada"), downloaded(time.Hour, "1.1.0", "ci"))
	objects := protect(t, env["AWS_ENDPOINT_URL_S3"])
	env["AWS_ENDPOINT_URL_S3"], env["LARDER_STORE"] = objects.URL, "stack:larder"
	run := func(code int, texts []string, args ...string) {
		t.Helper()
		cmd := withEnv(t, env, args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d\n%s", args, got, code, out)
		}
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				t.Errorf("the output of %s does not contain %q:\n%s", args, text, out)
			}
		}
	}
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("x"))
	publish := []string{"publish", "module", dir, "acme/vpc/aws"}
	for _, v := range []string{"1.0.0", "1.1.0"} {
		run(0, nil, append(publish, v)...)
	}

	// On a terminal, withdraw prints the downloads and prompts.
	ask := func(env map[string]string, answer string, texts ...string) {
		t.Helper()
		out, code := onTerminal(t, withEnv(t, env, "withdraw", "acme/vpc/aws", "1.0.0", "--reason", "it has a key"), 0, answer)
		if code != failure.ExitFailed {
			t.Errorf("%q: exit code %d, want %d\n%s", answer, code, failure.ExitFailed, out)
		}
		for _, text := range append(texts, "acme/vpc/aws 1.0.0 from stack:larder? ") {
			if !strings.Contains(plain(out), text) {
				t.Errorf("%q: the output does not contain %q:\n%s", answer, text, out)
			}
		}
	}
	ask(env, "n\n", " ci, 2 times, ", " ada, 1 time, ", "nothing was changed")
	run(0, []string{"1.0.0", "sha256:"}, "list", "acme/vpc/aws")
	ask(env, "Yes\n", "s3:DeleteObjectVersion",
		"acme/vpc/aws 1.0.0 is withdrawn, but none of its objects are removed, and existing download URLs below "+
			"modules/acme/vpc/aws/1.0.0/ still work: ",
		"Attach the policy arn:aws:iam::000000000000:policy/withdraw, then run the same command again.")
	run(failure.ExitExists, []string{"it has a key"}, append(publish, "1.0.0")...)
	run(failure.ExitFailed, []string{"object-of-withdrawn-version: modules/acme/vpc/aws 1.0.0: "}, "verify")
	withdraw := []string{"withdraw", "acme/vpc/aws", "1.0.0", "--reason", "x", "--yes"}
	env["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1" // nobody listens
	run(failure.ExitFailed, []string{"Run the same command again to delete the remaining objects."}, withdraw...)
	env["AWS_ENDPOINT_URL_S3"] = objects.URL
	objects.allowed.Store(true)
	run(0, []string{
		"Unchanged: arn:aws:iam::000000000000:user/operator withdrew ", ": it has a key; 3 objects deleted",
	}, withdraw...)

	// A command that is killed before it deletes an object has withdrawn the
	// version. The next command deletes the object.
	withdraw[2] = "1.1.0"
	objects.block.Store(true)
	killed := withEnv(t, env, withdraw...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-objects.blocked:
	case <-time.After(time.Minute):
		t.Error("no object is deleted")
	}
	if err := killed.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = killed.Wait()
	objects.block.Store(false)
	run(0, []string{`"status": "unchanged"`, `"removed": 3`}, append(withdraw, "--json")...)
	run(0, []string{"0 faults, 0 repaired, 0 notes"}, "verify")
}

// onTerminal runs a command on a terminal and answers its prompt. It returns
// the output and the exit code. If columns is 0, the terminal reports no width.
func onTerminal(t *testing.T, cmd *exec.Cmd, columns uint16, answer string) (shown string, code int) {
	t.Helper()
	terminal, slave, err := pty.Open()
	if err != nil {
		t.Skip("LEFT OUT: no pseudo-terminal:", err)
	}
	defer terminal.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	var out bytes.Buffer
	b := make([]byte, 1024)
	for answered := false; ; {
		n, err := terminal.Read(b)
		out.Write(b[:n])
		if !answered && strings.Contains(out.String(), "[y/N]") {
			answered = true
			if _, err := io.WriteString(terminal, answer); err != nil {
				t.Error(err)
			}
		}
		if err != nil { // no process has the terminal open
			break
		}
	}
	_ = cmd.Wait()
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}
