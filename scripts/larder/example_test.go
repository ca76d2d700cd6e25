package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/access"
)

// example is a workflow in the folder examples.
type example struct {
	text string
	// rules are the access settings in its comment.
	rules    string
	settings access.Settings
}

// readExample reads the workflow for a CI service.
func readExample(t *testing.T, service string) example {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + service + "-publish.yml")
	if err != nil {
		t.Fatal(err)
	}
	e := example{text: string(text)}
	for line := range strings.Lines(e.text) {
		if rule, ok := strings.CutPrefix(line, "#   "); ok && !strings.HasPrefix(rule, "-") &&
			(e.rules != "" || rule == "{\n") {
			e.rules += rule
		}
	}
	if e.settings, err = access.ParseSettings([]byte(e.rules)); err != nil || len(e.settings.Issuers) != 1 {
		t.Fatalf("%s: %v\n%s", service, err, e.rules)
	}
	return e
}

// The example workflows use valid commands, and their rules allow exactly what
// they publish.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"github", "gitlab"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			e := readExample(t, service)
			var published []string
			command := regexp.MustCompile(`(?m)^(?:#|[ -]*(?:run:)?) *larder (.*)$`)
			for _, found := range command.FindAllStringSubmatch(e.text, -1) {
				var args []string
				for _, word := range strings.Fields(found[1]) {
					args = append(
						args,
						os.Expand(
							strings.Trim(word, `"`),
							func(variable string) string { return "v1.0.0-of-" + strings.ReplaceAll(variable, "_", "-") },
						),
					)
				}
				c := &cli{}
				cmd, rest, err := c.command().Find(args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err != nil || !cmd.Runnable() || cmd.HasSubCommands() {
					t.Errorf("larder %s: %v", found[1], err)
					continue
				}
				if cmd.Name() != "module" && cmd.Name() != "provider" {
					continue
				}
				c.flags = cmd.Flags()
				p, err := c.place()
				host := p.host
				if err != nil || !c.remote.ciIdentity ||
					!slices.Contains(e.settings.Issuers[0].Audiences, "https://"+host) {
					t.Errorf("larder %s goes to %s: %v", found[1], host, err)
				}
				published = append(published, "publish:"+cmd.Name()+"s/"+cmd.Flags().Arg(1))
			}
			var allowed []string
			for _, scope := range regexp.MustCompile(`"(publish:[^"]*)"`).FindAllStringSubmatch(e.rules, -1) {
				allowed = append(allowed, scope[1])
			}
			if len(published) != 2 || !slices.Equal(published, allowed) {
				t.Errorf("published is %q, and allowed %q", published, allowed)
			}
			for _, action := range regexp.MustCompile(`uses: *(.*)`).FindAllStringSubmatch(e.text, -1) {
				if !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(action[1]) {
					t.Errorf("action %s is not pinned to a commit", action[1])
				}
			}
		})
	}
}

// A job that builds a provider runs code of its dependencies. It must have
// neither the job's identity nor the signing key. Jobs that publish do not
// build.
func TestExamplesKeepApart(t *testing.T) {
	t.Parallel()
	for service, test := range map[string]struct{ job, powers, publishes string }{
		"github": {`(?m)^  (\w+):\n(?:(?:    .*)?\n)+`, `id-token|environment:|secrets\.|larder publish`, "id-token: write"},
		"gitlab": {
			`(?m)^([.\w]+):\n(?:(?:  .*)?\n)+`, `id_tokens|environment:|SIGNING|larder publish|\.publish`,
			"extends: .publish",
		},
	} {
		e := readExample(t, service)
		_, text, _ := strings.Cut(e.text, map[string]string{"github": "\njobs:\n", "gitlab": "\n.tagged:"}[service])
		builds, publishes := 0, 0
		for _, job := range regexp.MustCompile(test.job).FindAllStringSubmatch(text, -1) {
			body := job[0]
			if strings.Contains(body, " release --clean") {
				builds++
				if found := regexp.MustCompile(test.powers).FindString(body); found != "" {
					t.Errorf("%s: %s builds, and has %s:\n%s", service, job[1], found, body)
				}
				continue
			}
			if strings.Contains(body, "larder publish") {
				publishes++
				if !strings.Contains(body, test.publishes) ||
					strings.Contains(body, "publish provider") && !strings.Contains(body, "needs: ") {
					t.Errorf("%s: %s publishes:\n%s", service, job[1], body)
				}
				if service == "github" && !strings.Contains(body, "uses: larder-registry/larder@") {
					t.Errorf("%s: %s does not install a verified release:\n%s", service, job[1], body)
				}
				if strings.Contains(body, "go install") {
					t.Errorf("%s: %s compiles:\n%s", service, job[1], body)
				}
			}
		}
		if builds != 1 || publishes != 2 {
			t.Errorf("%s: %d jobs build, and %d publish", service, builds, publishes)
		}
	}
	if gitlab := readExample(t, "gitlab").text; !strings.Contains(gitlab, `echo "$LARDER_SHA256  `) {
		t.Error("gitlab: the release is not verified")
	}
	if github := readExample(t, "github").text; !strings.Contains(github, "\npermissions: {}") {
		t.Error("github: every job has the permissions of the whole workflow")
	}
}
