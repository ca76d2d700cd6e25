package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/examine/doctor"
)

// doctor runs `larder doctor` for the server, and returns its output.
func (s *server) doctor(t *testing.T, code int, home, stdin string, environ []string, args ...string) (printed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(
		t.Context(),
		"larder",
		append([]string{"doctor", "https://" + s.Host, "--module", "acme/hello/null"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + s.CAFile}, environ...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if err != nil && exit == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("larder doctor: %v, want exit code %d\n%s%s", err, code, &stdout, &stderr)
	}
	return stdout.String() + stderr.String()
}

// doctor finds nothing wrong with a server of this release, whichever way it
// gets the credential. It reports a missing credential.
func TestDoctor(t *testing.T) {
	t.Parallel()
	data, home := newData(t), t.TempDir()
	publishModule(t, data, "acme/hello/null", "1.0.0", map[string]string{"main.tf": ""})
	var made struct {
		Token string `json:"token"`
	}
	out := larder(t, "token", "create", "--name", "doctor", "--scope", "read:**", "--store", "dir:"+data, "--json")
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	s := serve(t, data, "--require-token")

	for _, way := range []struct {
		name, stdin string
		environ     []string
		args        []string
		place       string
	}{
		{"variable", "", []string{"LARDER_TOKEN=" + made.Token}, nil, "LARDER_TOKEN\n"},
		{"variable with a line end", "", []string{"LARDER_TOKEN=" + made.Token + "\n"}, nil, "LARDER_TOKEN\n"},
		{
			"standard input", made.Token + "\n", []string{"LARDER_TOKEN=another"}, []string{"--token-stdin"},
			"standard input\n",
		},
	} {
		printed := s.doctor(t, 0, home, way.stdin, way.environ, way.args...)
		credential := regexp.MustCompile(`(?m)^ok {7}credential: .*\n`).FindString(printed)
		if !strings.HasSuffix(credential, way.place) {
			t.Errorf("%s: the credential is %q, want that of %q", way.name, credential, way.place)
		}
		if want := "ok       module archive: "; !strings.Contains(printed, want) {
			t.Errorf("%s: the output does not contain %q:\n%s", way.name, want, printed)
		}
		for _, text := range []string{made.Token, "YOUR TOKEN"} {
			if strings.Contains(printed, text) {
				t.Errorf("%s: the output contains %q:\n%s", way.name, text, printed)
			}
		}
	}

	writeFiles(t, home, map[string]string{".tofurc": credentials(s.Host, made.Token)})
	var found examinedView
	if err := json.Unmarshal([]byte(s.doctor(t, 0, home, "", nil, "--json")), &found); err != nil || !found.OK ||
		found.Host != s.Host {
		t.Errorf("%v: %+v", err, found)
	}

	// Without a credential there is one JSON object, and exit code 1.
	found = examinedView{}
	if err := json.Unmarshal([]byte(s.doctor(t, 1, t.TempDir(), "", nil, "--json")), &found); err != nil || found.OK ||
		found.Count(doctor.Wrong) != 1 {
		t.Errorf("%v: %+v", err, found)
	}
	printed := s.doctor(t, 1, t.TempDir(), "", nil)
	for _, want := range []string{
		"wrong    credential: 401", "fix: ", "larder: " + s.Host + ": ", "skipped  module: ",
		`  credentials "` + s.Host + `" {`,
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("the output does not contain %q:\n%s", want, printed)
		}
	}

	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte("credentials {{"), 0o600); err != nil {
		t.Fatal(err)
	}
	printed = s.doctor(t, 1, home, "", nil)
	for _, want := range []string{"wrong    configuration: ", "ok       discovery: "} {
		if !strings.Contains(printed, want) {
			t.Errorf("the output does not contain %q:\n%s", want, printed)
		}
	}
	if printed := s.doctor(t, 2, home, "", []string{"LARDER_TOKEN=a\nb"}); !strings.Contains(printed, "LARDER_TOKEN") {
		t.Errorf("the output does not name the variable:\n%s", printed)
	}
}

// With --json there is no output besides the JSON object. URLs with http are
// rejected.
func TestDoctorOutput(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"https://larder-doctor.invalid", "--json"}, 1, `"ok": false`, ""},
		{[]string{"http://registry.example.com"}, 2, "", "larder: "},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"doctor"}, test.args...), &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) ||
			test.stderr == "" != (stderr.Len() == 0) ||
			!strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("%q: %d\n%s\n%s", test.args, code, &stdout, &stderr)
		}
	}
}
