package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// printed returns the output of a view on a terminal with a width in columns.
func printed(print func(output.Page), width int) string {
	var out bytes.Buffer
	print(output.Page{Output: terminal.Output{Writer: &out, Width: width}})
	return out.String()
}

// checkWidth fails if a line has more columns than the terminal.
func checkWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

func TestExpiryState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		expires time.Time
		want    string
	}{
		{"never", time.Time{}, "valid"},
		{"after 14 days", now.Add(14*arguments.Day + time.Second), "valid"},
		{"in 14 days", now.Add(14 * arguments.Day), "expires soon"},
		{"in a second", now.Add(time.Second), "expires soon"},
		{"now", now, "expired"},
		{"a day ago", now.Add(-arguments.Day), "expired"},
	} {
		if got := output.ExpiryState(test.expires, now); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Lists of tokens and keys fit 80 columns. Without a terminal they are
// complete.
func TestListsOfCredentials(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	const arn = "arn:aws:sts::000000000000:assumed-role/LarderOperator/ada@example.com"
	tokens := tokensView{
		Tokens: []listedToken{
			{registry.Token{
				ID: "0a1b2c3d4e5f", Name: "continuous-integration", CreatedAt: made, CreatedBy: arn, ExpiresAt: made.Add(arguments.Day),
				Scopes: []string{"read:modules/acme/**", "publish:modules/acme/**", "publish:providers/acme/**"},
			}, "expires soon", made.Add(time.Hour)},
			{
				registry.Token{
					ID:        "1a1b2c3d4e5f",
					Name:      "ada",
					CreatedAt: made,
					CreatedBy: arn,
					Scopes:    []string{"read:**"},
				},
				"valid", time.Time{},
			},
		},
		Damaged: []string{"2a1b2c3d4e5f"},
	}
	keys := keysView{Keys: []listedKey{{registry.SigningKey{
		ID: "51852D87348FFC4C", Owner: "Release Engineering of Example <releases@example.com>", Algorithm: "ECDSA P-256",
		ExpiresAt: made, AddedAt: made,
	}, "expires soon", []string{"acme/note 1.0.0"}}}}
	texts := golden.New(t)
	for name, v := range map[string]output.View{"tokens": tokens, "keys": keys} {
		t.Run(name, func(t *testing.T) {
			narrow := printed(v.Text, 80)
			checkWidth(t, narrow, 80)
			texts.Text(t, narrow+"\nin full:\n"+printed(v.Text, 0))
		})
	}
	if got, want := printed(tokens.Quiet, 80), "0a1b2c3d4e5f\n1a1b2c3d4e5f\n2a1b2c3d4e5f\n"; got != want {
		t.Errorf("tokens with --quiet: %q, want %q", got, want)
	}
	if got, want := printed(keys.Quiet, 80), "51852D87348FFC4C\n"; got != want {
		t.Errorf("keys with --quiet: %q, want %q", got, want)
	}
}

// The output for a new token fits 80 columns. It names the host only if it is
// certain.
func TestCreatedToken(t *testing.T) {
	t.Parallel()
	v := createdTokenView{
		Token: "larder_" + strings.Repeat("x", 49), Host: "registry.my-company.example.com",
		Record: registry.Token{ID: "0a1b2c3d4e5f", Name: "ci", Scopes: []string{
			"read:modules/acme/**", "publish:modules/acme/**", "publish:providers/acme/**",
		}},
		to: place.Addressing{Host: "registry.my-company.example.com"},
	}
	texts := golden.New(t)
	narrow := printed(v.Text, 80)
	checkWidth(t, narrow, 80)
	texts.Text(t, "at 80 columns:\n"+narrow)
	full := printed(v.Text, 0)
	texts.Text(t, "\nin full:\n"+full)
	if export := "\n  export TF_TOKEN_registry_my__company_example_com=" + v.Token + "\n"; !strings.Contains(
		full,
		export,
	) {
		t.Errorf("in full: no %q in\n%s", export, full)
	}
	if got := printed(v.Quiet, 80); got != v.Token+"\n" {
		t.Errorf("with --quiet: %q", got)
	}
	v.to = place.Addressing{Host: "HOST", Guessed: "Replace HOST with the registry's host."}
	unknown := printed(v.Text, 80)
	checkWidth(t, unknown, 80)
	texts.Text(t, "\nwithout a host:\n"+unknown)
	if strings.Contains(unknown, "TF_TOKEN_") {
		t.Errorf("without a host the output names a variable:\n%s", unknown)
	}
}
