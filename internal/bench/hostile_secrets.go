package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// shortestSecret is how long a text must be to be looked for in logs: shorter ones
// are there by chance.
const shortestSecret = 24

// credential makes a token, whose use no log may show.
func (a *attacked) credential(ctx context.Context, v victim, name string, scopes ...string) (string, error) {
	token, err := newCredential(ctx, v.catalog(), name, scopes...)
	a.secret(token)
	return token, err
}

// secret adds texts that no log may hold.
func (a *attacked) secret(texts ...string) {
	for _, text := range texts {
		if len(text) >= shortestSecret && !slices.Contains(a.secrets, text) {
			a.secrets = append(a.secrets, text)
		}
	}
}

// presigned adds the signatures of presigned URLs.
func (a *attacked) presigned(urls ...string) {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			a.secret(u.Query().Get("signature"), u.Query().Get("X-Amz-Signature"))
		}
	}
}

// logsHold looks for secrets in all that the server and the functions have logged.
func (a *attacked) logsHold(context.Context) error {
	logs := map[string]string{"larder serve": a.server.logged(), "functions": strings.Join(a.logs, "\n")}
	t := table{title: "logs", columns: []column{{"lines", ""}, {"secrets used", ""}, {"of these logged", ""}}}
	for _, name := range []string{"larder serve", "functions"} {
		found := 0
		for _, secret := range a.secrets {
			if at := strings.Index(logs[name], secret); at >= 0 {
				found++
				if found <= 5 {
					line := logs[name][strings.LastIndexByte(logs[name][:at], '\n')+1 : at]
					a.note(fmt.Sprintf("logs of %s: a secret comes after: %.300s", name, line))
				}
			}
		}
		t.rows = append(t.rows, row{name, []*figure{
			is(float64(strings.Count(logs[name], "\n"))), is(float64(len(a.secrets))), atMost(float64(found), 0),
		}})
	}
	a.found.tables = append(a.found.tables, t)
	return nil
}
