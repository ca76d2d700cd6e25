package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/s3test"
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
		publishModule(t, s.data, "acme/vpc/aws", v, output(v))
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
	if code := again.ProcessState.ExitCode(); code != exitExists {
		t.Errorf("mirror import: exit code %d, want %d\n%s", code, exitExists, &stderr)
	}
	texts := golden.New(t)
	texts.Text(t, "$ larder mirror import DIR\n"+errorText(stderr.String()))
	deprecate := []string{"deprecate", "acme/note", "--message", "x"}
	out := fails(t, exitNotFound, append(deprecate, store...)...)
	texts.Text(t, "$ larder "+quotedAll(deprecate)+"\n"+errorText(out))
	// A publish through the registry fails too.
	dir := t.TempDir()
	writeFiles(t, dir, output("1.0.0"))
	p := s.publisher(t, credentials(s.Host, token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")))
	p.texts = texts
	p.run(
		t,
		exitExists,
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

// firstObject matches the name of the first object of a version, which depends
// on the digests of its objects.
var firstObject = regexp.MustCompile(`ID(?:/docs\.json\.gz|\.tar\.gz):`)

// On a stack, withdraw prints who has downloaded the version and prompts. It
// withdraws the version even without permission to delete objects. With it, a
// second run deletes them.
func TestWithdrawOnStack(t *testing.T) {
	t.Parallel()
	s3 := s3test.ForTest(t, "larder-objects")
	objects := protect(t, s3.URL)
	dynamo, err := dynamodbtest.Start(t.Context(), "larder-table")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	now := time.Now().UTC()
	request := func(ago time.Duration, version, caller string) string {
		return fmt.Sprintf(
			`{"timestamp":%q,"level":"INFO","message":"request","method":"GET","status":204,`+
				`"route":"/v1/modules/{namespace}/{name}/{system}/{version}/download","address":"acme/vpc/aws",`+
				`"version":%q,"download":"module","caller":%q}`,
			now.Add(-ago).Format(time.RFC3339),
			version,
			caller,
		)
	}
	lines := []string{
		request(time.Hour, "1.0.0", "ci"),
		request(2*time.Hour, "1.0.0", "ci"),
		request(time.Hour, "1.0.0", "ada"),
		request(time.Hour, "1.1.0", "ci"),
		fmt.Sprintf(
			`{"timestamp":%q,"level":"INFO","message":"request","method":"GET","status":200,`+
				`"route":"/v1/mirror/{hostname}/{namespace}/{type}/{document}","address":"localhost/acme/note",`+
				`"version":"1.0.0","download":"mirror","caller":"ada"}`,
			now.Format(time.RFC3339),
		),
	}
	var forbidden atomic.Bool
	insights := httptest.NewServer(&cloudwatch.Insights{
		Lines: func(group string) ([]string, bool) { return lines, group == "modules-log" },
		Refuse: func(string) string {
			if forbidden.Load() {
				return "AccessDeniedException"
			}
			return ""
		},
	})
	t.Cleanup(insights.Close)
	cloud := account(t, map[string]string{
		"TableName": "larder-table", "BucketName": "larder-objects", "RequestLogs": "modules-log", "RequestLogDays": "30",
		"WithdrawPolicyArn": "arn:aws:iam::000000000000:policy/withdraw",
	})
	env := func(cloud string) []string {
		return []string{
			"AWS_ACCESS_KEY_ID=" + awstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey,
			"AWS_REGION=" + awstest.Region, "AWS_EC2_METADATA_DISABLED=true", "AWS_MAX_ATTEMPTS=1", "GORACE=atexit_sleep_ms=0",
			"AWS_ENDPOINT_URL_DYNAMODB=" + dynamo.URL, "AWS_ENDPOINT_URL_S3=" + objects.URL,
			"AWS_ENDPOINT_URL_CLOUDFORMATION=" + cloud, "AWS_ENDPOINT_URL_STS=" + cloud,
			"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=" + insights.URL,
			"LARDER_S3_PATH_STYLE=true", "LARDER_STORE=stack:larder", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		}
	}
	larder := func(cloud string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Env = env(cloud)
		return cmd
	}
	recorded := golden.New(t)
	record := func(cmd *exec.Cmd, out string) {
		t.Helper()
		recorded.Text(t, "$ larder "+steady(quotedAll(cmd.Args[1:]))+"\n"+out)
	}
	run := func(cmd *exec.Cmd, code int, texts ...string) string {
		t.Helper()
		out, _ := cmd.CombinedOutput()
		switch {
		case code != 0:
			record(cmd, firstObject.ReplaceAllString(errorText(string(out)), "OBJECT:"))
		case cmd.Args[1] == "usage" && !slices.Contains(cmd.Args, "--json"):
			record(cmd, steady(string(out)))
		}
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d\n%s", cmd, got, code, out)
		}
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				t.Errorf("the output of %s does not contain %q:\n%s", cmd, text, out)
			}
		}
		return string(out)
	}
	dir := t.TempDir()
	writeFiles(t, dir, output("x"))
	for _, v := range []string{"1.0.0", "1.1.0"} {
		run(larder(cloud, "publish", "module", dir, "acme/vpc/aws", v), 0)
	}

	// usage counts downloads.
	run(
		larder(cloud, "usage"),
		0,
		"acme/vpc/aws         1.0.0            3 ",
		"acme/vpc/aws         1.1.0            1 ",
	)
	run(
		larder(cloud, "usage", "acme/vpc/aws", "1.0.0", "--since", "90d"),
		0,
		"1.0.0    ci              2 ",
		"1.0.0    ada             1 ",
	)
	one := larder(cloud, "usage", "acme/vpc/aws", "1.0.0", "--json")
	if out := run(one, 0, `"caller": "ci"`, `"log_retention_days": 30`); strings.Contains(out, "1.1.0") {
		t.Errorf("usage of 1.0.0 has another version:\n%s", out)
	}
	run(larder(cloud, "publish", "module", dir, "acme/dns/aws", "1.0.0"), 0)
	run(larder(cloud, "usage", "acme/dns/aws"), 0)
	run(larder(cloud, "usage", "acme/dns/aws", "1.0.0"), 0)
	run(
		larder(cloud, "usage", "acme/dns/aws", "1.1.0"),
		exitNotFound,
		"acme/dns/aws 1.1.0: not found",
	)
	for _, never := range []string{"acme/dns/azure", "acme/dns", "localhost/acme/dns", "registry.example.com/acme/dns"} {
		run(larder(cloud, "usage", never), exitNotFound, never+": not found")
	}
	// An address with a hostname without a dot needs its kind.
	folder := t.TempDir()
	release := releaseOf(t, signingKey(t, "Ed25519"))
	if err := clients.WriteMirrorFolder(release, filepath.Join(folder, "localhost/acme/note")); err != nil {
		t.Fatal(err)
	}
	run(larder(cloud, "mirror", "import", folder), 0)
	run(larder(cloud, "usage", "mirror/localhost/acme/note"), 0, "1.0.0    ada             1 ")
	run(larder(cloud, "usage", "mirror/localhost/acme/note", "1.0.0"), 0, "1.0.0    ada             1 ")
	run(larder(cloud, "usage", "mirror/localhost/acme/note", "1.1.0"), exitNotFound)
	run(larder(cloud, "usage", "localhost/acme/note"), exitNotFound, "localhost/acme/note: not found")
	run(larder(cloud, "list", "mirror/localhost/acme/note"), 0, "1.0.0")

	// On a terminal, withdraw prints the downloads and prompts.
	ask := func(cloud, answer string, code int, texts ...string) {
		t.Helper()
		cmd := larder(cloud, "withdraw", "acme/vpc/aws", "1.0.0", "--reason", "it has a key")
		out, got := onTerminal(t, cmd, 0, answer)
		record(cmd, errorText(out))
		if got != code {
			t.Errorf("%q: exit code %d, want %d\n%s", answer, got, code, out)
		}
		for _, text := range append(texts, "acme/vpc/aws 1.0.0 from stack:larder? ") {
			if !strings.Contains(out, text) {
				t.Errorf("%q: the output does not contain %q:\n%s", answer, text, out)
			}
		}
	}
	ask(cloud, "n\n", exitFailed, "  ci, 2 times, ", "  ada, 1 time, ")
	forbidden.Store(true)
	ask(cloud, "\x04", exitFailed, "logs:StartQuery")
	run(larder(cloud, "list", "acme/vpc/aws"), 0, "1.0.0", "sha256:")

	ask(
		cloud,
		"Yes\n",
		exitFailed,
		"acme/vpc/aws 1.0.0",
		"s3:DeleteObjectVersion",
		"arn:aws:iam::000000000000:policy/withdraw",
	)
	run(larder(cloud, "publish", "module", dir, "acme/vpc/aws", "1.0.0"), exitExists, "it has a key")
	run(larder(cloud, "verify"), exitFailed, "object-of-withdrawn-version: modules/acme/vpc/aws 1.0.0: ")
	objects.allowed.Store(true)
	run(
		larder(cloud, "withdraw", "acme/vpc/aws", "1.0.0", "--reason", "x", "--yes"),
		0,
		"Unchanged: arn:aws:iam::000000000000:user/operator withdrew ",
		": it has a key; 2 objects deleted",
	)
	run(larder(cloud, "verify"), 0, "0 faults, 0 repaired, 0 notes")
	run(
		larder(cloud, "list", "acme/vpc/aws"),
		0,
		"1.1.0",
		"1.0.0    withdrawn  ",
		"  arn:aws:iam::000000000000:user/operator  ",
		"  it has a key",
	)

	// A command that is killed before it deletes an object has withdrawn the
	// version. The next command deletes the object.
	objects.block.Store(true)
	killed := larder(cloud, "withdraw", "acme/vpc/aws", "1.1.0", "--reason", "it has another", "--yes")
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
	run(larder(cloud, "publish", "module", dir, "acme/vpc/aws", "1.1.0"), exitExists, "it has another")
	run(
		larder(cloud, "withdraw", "acme/vpc/aws", "1.1.0", "--reason", "x", "--yes", "--json"),
		0,
		`"status": "unchanged"`,
		`"removed": 2`,
	)
	run(larder(cloud, "verify"), 0, "0 faults, 0 repaired, 0 notes")
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
