package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/doctor"
)

func (s *server) doctor(t *testing.T, code int, home, stdin string, environ []string, args ...string) (printed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", append([]string{"doctor", "https://" + s.Host, "--module", "acme/hello/null"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + s.CAFile}, environ...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if err != nil && exit == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("larder doctor: %v, want exit code %d\n%s%s", err, code, &stdout, &stderr)
	}
	return stdout.String() + stderr.String()
}

// A registry that this serves is healthy, by whichever way the credential comes; and without one that is said.
func TestDoctor(t *testing.T) {
	t.Parallel()
	data, home := newData(t), t.TempDir()
	publishModule(t, data, "acme/hello/null", "1.0.0", map[string]string{"main.tf": ""})
	var made struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal([]byte(larder(t, "token", "create", "--name", "doctor", "--scope", "read:**", "--store", "dir:"+data, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	s := serve(t, data, "--require-token")

	for _, way := range []struct {
		name, stdin string
		environ     []string
		args        []string
		place       string
	}{
		{"variable", "", []string{"LARDER_TOKEN=" + made.Token}, nil, "the token in LARDER_TOKEN is taken"},
		{"variable of a file's text", "", []string{"LARDER_TOKEN=" + made.Token + "\n"}, nil, "the token in LARDER_TOKEN is taken"},
		{"standard input", made.Token + "\n", []string{"LARDER_TOKEN=another"}, []string{"--token-stdin"}, "the token from standard input is taken"},
	} {
		printed := s.doctor(t, 0, home, way.stdin, way.environ, way.args...)
		for _, want := range []string{way.place, "ok       module archive: ", "Nothing is wrong with " + s.Host} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: want %q in\n%s", way.name, want, printed)
			}
		}
		if strings.Contains(printed, made.Token) || strings.Contains(printed, "YOUR TOKEN") {
			t.Errorf("%s: it prints the token, or asks for one:\n%s", way.name, printed)
		}
	}

	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte("credentials \""+s.Host+"\" {\n  token = \""+made.Token+"\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found examinedView
	if err := json.Unmarshal([]byte(s.doctor(t, 0, home, "", nil, "--json")), &found); err != nil || !found.OK || found.Host != s.Host {
		t.Errorf("%v: %+v", err, found)
	}

	// One JSON value, and the exit code says it too.
	found = examinedView{}
	if err := json.Unmarshal([]byte(s.doctor(t, 1, t.TempDir(), "", nil, "--json")), &found); err != nil || found.OK || found.Count(doctor.Wrong) != 1 {
		t.Errorf("%v: %+v", err, found)
	}
	printed := s.doctor(t, 1, t.TempDir(), "", nil)
	for _, want := range []string{"wrong    credential: 401", "to do: ask the registry's operator", "larder: " + s.Host + ": 1 thing is wrong", "skipped  module: the registry takes no request", `  credentials "` + s.Host + `" {`} {
		if !strings.Contains(printed, want) {
			t.Errorf("want %q in\n%s", want, printed)
		}
	}

	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte("credentials {{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if printed := s.doctor(t, 1, home, "", nil); !strings.Contains(printed, "wrong    configuration: ") || !strings.Contains(printed, "ok       discovery: ") {
		t.Error(printed)
	}
	if printed := s.doctor(t, 2, home, "", []string{"LARDER_TOKEN=a\nb"}); !strings.Contains(printed, "the token in LARDER_TOKEN has a line break") {
		t.Error(printed)
	}
}

// Where the document says it all, nothing else is printed; and clients do not speak http.
func TestDoctorOutput(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"https://larder-doctor.invalid", "--json"}, 1, `"ok": false`, ""},
		{[]string{"http://registry.example.com"}, 2, "", "clients use https only"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"doctor"}, test.args...), &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) || test.stderr == "" != (stderr.Len() == 0) || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("%q: %d\n%s\n%s", test.args, code, &stdout, &stderr)
		}
	}
}
