package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// shortestSecret is the minimum length of a text to search for in logs. Shorter
// texts occur by chance.
const shortestSecret = 24

// credential creates a token, which must not appear in any log.
func (a *attacked) credential(ctx context.Context, v victim, name string, scopes ...string) (string, error) {
	token, err := newCredential(ctx, v.catalog(), name, scopes...)
	a.secret(token)
	return token, err
}

// secret adds texts that must not appear in any log.
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

// logsHold searches the logs of the server and of the functions for secrets.
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
					a.note(fmt.Sprintf("logs of %s: a secret follows: %.300s", name, line))
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
