package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

// printed returns what a view prints on a terminal with a number of columns.
func printed(print func(page), width int) string {
	var out bytes.Buffer
	print(page{terminal.Output{Writer: &out, Width: width}})
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
		{"after 14 days", now.Add(14*day + time.Second), "valid"},
		{"in 14 days", now.Add(14 * day), "expires soon"},
		{"in a second", now.Add(time.Second), "expires soon"},
		{"now", now, "expired"},
		{"a day ago", now.Add(-day), "expired"},
	} {
		if got := expiryState(test.expires, now); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Lists of tokens and keys fit 80 columns, and are in full if the output is no
// terminal.
func TestListsOfCredentials(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	const arn = "arn:aws:sts::000000000000:assumed-role/LarderOperator/ada@example.com"
	tokens := tokensView{
		Tokens: []listedToken{
			{registry.Token{
				ID: "0a1b2c3d4e5f", Name: "continuous-integration", CreatedAt: made, CreatedBy: arn, ExpiresAt: made.Add(day),
				Scopes: []string{"read:modules/acme/**", "publish:modules/acme/**", "publish:providers/acme/**"},
			}, "expires soon"},
			{registry.Token{ID: "1a1b2c3d4e5f", Name: "ada", CreatedAt: made, CreatedBy: arn, Scopes: []string{"read:**"}}, "valid"},
		},
		Damaged: []string{"2a1b2c3d4e5f"},
	}
	keys := keysView{Keys: []listedKey{{registry.SigningKey{
		ID: "51852D87348FFC4C", Owner: "Release Engineering of Example <releases@example.com>", Algorithm: "ECDSA P-256",
		ExpiresAt: made, AddedAt: made,
	}, "expires soon", []string{"acme/note 1.0.0"}}}}
	for _, test := range []struct {
		name     string
		view     view
		terminal []string
		piped    []string
	}{
		{
			"tokens", tokens,
			[]string{
				"0a1b2c3d4e5f  continuous-int…  expires soon  2026-11-02  read:modules/acme/** +2",
				"1a1b2c3d4e5f  ada              valid         never",
				"2a1b2c3d4e5f  -                damaged       -",
				"Revoke it by its id.",
			},
			[]string{
				"continuous-integration  expires soon  2026-11-02 12:00 UTC  read:modules/acme/** publish:modules/acme/** " +
					"publish:providers/acme/**  2026-11-01  " + arn,
			},
		},
		{
			"keys", keys,
			[]string{"51852D87348FFC4C  expires soon  2026-11-01  1 version  Release Engineering of E…"},
			[]string{"ECDSA P-256  2026-11-01  1 version  2026-11-01  Release Engineering of Example <releases@example.com>"},
		},
	} {
		narrow := printed(test.view.text, 80)
		checkWidth(t, narrow, 80)
		for _, want := range test.terminal {
			if !strings.Contains(narrow, want) {
				t.Errorf("%s at 80 columns: want %q in\n%s", test.name, want, narrow)
			}
		}
		full := printed(test.view.text, 0)
		for _, want := range test.piped {
			if !strings.Contains(full, want) {
				t.Errorf("%s in full: want %q in\n%s", test.name, want, full)
			}
		}
	}
	if got, want := printed(tokens.quiet, 80), "0a1b2c3d4e5f\n1a1b2c3d4e5f\n2a1b2c3d4e5f\n"; got != want {
		t.Errorf("tokens with --quiet: %q, want %q", got, want)
	}
	if got, want := printed(keys.quiet, 80), "51852D87348FFC4C\n"; got != want {
		t.Errorf("keys with --quiet: %q, want %q", got, want)
	}
}

// A new token is shown so that it fits 80 columns, with its host if that is known.
func TestCreatedToken(t *testing.T) {
	t.Parallel()
	v := createdTokenView{
		Token: "larder_" + strings.Repeat("x", 49), Host: "registry.my-company.example.com",
		Record: registry.Token{ID: "0a1b2c3d4e5f", Name: "ci", Scopes: []string{
			"read:modules/acme/**", "publish:modules/acme/**", "publish:providers/acme/**",
		}},
		to: addressing{host: "registry.my-company.example.com"},
	}
	const variable = "TF_TOKEN_registry_my__company_example_com"
	narrow := printed(v.text, 80)
	checkWidth(t, narrow, 80)
	for _, want := range []string{
		"Created token ci (0a1b2c3d4e5f), which never expires:\n\n  " + v.Token + "\n",
		"Or set this environment variable to it:\n\n  " + variable + "\n",
	} {
		if !strings.Contains(narrow, want) {
			t.Errorf("at 80 columns: want %q in\n%s", want, narrow)
		}
	}
	if full := printed(v.text, 0); !strings.Contains(full, "\n  export "+variable+"="+v.Token+"\n") {
		t.Errorf("in full: no export in\n%s", full)
	}
	if got := printed(v.quiet, 80); got != v.Token+"\n" {
		t.Errorf("with --quiet: %q", got)
	}
	v.to = addressing{host: "HOST", guessed: "Put the registry's host in place of HOST: nothing names it."}
	unknown := printed(v.text, 80)
	checkWidth(t, unknown, 80)
	if !strings.Contains(unknown, "nothing names it.") {
		t.Errorf("without a host:\n%s", unknown)
	}
	if strings.Contains(unknown, "TF_TOKEN_") {
		t.Errorf("without a host it names a variable:\n%s", unknown)
	}
}
