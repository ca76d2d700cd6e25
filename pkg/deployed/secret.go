package deployed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// WebSecret returns a function that reads the secret of the login's web client
// from its SSM parameter. It returns nil if the client has no secret. The role
// of the function needs ssm:GetParameter.
func (r *Registry) WebSecret() func(context.Context) (string, error) {
	l := r.Login
	if l == nil || l.Web == nil || l.Web.SecretParameter == "" {
		return nil
	}
	p := &parameter{config: r.parameters, name: string(l.Web.SecretParameter), now: openid.Now}
	return p.get
}

// parameter is an encrypted parameter of SSM. It is read with a single request,
// because SSM's client in the AWS SDK would make the function start slower.
type parameter struct {
	config aws.Config
	name   string
	now    func() time.Time

	mu    sync.Mutex
	value string
	read  time.Time
}

const (
	// parameterTime is how long a parameter is cached. So a new secret is used
	// within this time.
	parameterTime = 5 * time.Minute
	// maxParameter bounds the response, in bytes. A parameter has at most 8 KiB.
	maxParameter = 64 << 10
)

// get returns the value of the parameter. Errors contain no part of it.
func (p *parameter) get(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if age := now.Sub(p.read); age >= 0 && age < parameterTime {
		return p.value, nil
	}
	value, err := p.fetch(ctx, now)
	if err != nil {
		return "", fmt.Errorf("cannot read the SSM parameter %s: %w", p.name, err)
	}
	p.value, p.read = value, now
	return value, nil
}

// fetch sends the request GetParameter.
//
// Source: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html.
func (p *parameter) fetch(ctx context.Context, now time.Time) (string, error) {
	body, err := json.Marshal(map[string]any{"Name": p.name, "WithDecryption": true})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, serviceURL("ssm", p.config), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", "AmazonSSM.GetParameter")
	if err := sign(ctx, request, body, "ssm", p.config, now); err != nil {
		return "", err
	}
	response, err := p.config.HTTPClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxParameter))
	if err != nil {
		return "", fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", parameterError(response.StatusCode, text)
	}
	var found struct{ Parameter struct{ Value string } }
	// An error of the parser could quote the value.
	if json.Unmarshal(text, &found) != nil || found.Parameter.Value == "" {
		return "", errors.New("the response has no value")
	}
	return found.Parameter.Value, nil
}

// parameterError returns the error for a response with another status than 200.
func parameterError(status int, body []byte) error {
	var failure struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(body, &failure) // without a type, the status remains
	kind := failure.Type[strings.LastIndexByte(failure.Type, '#')+1:]
	switch {
	case kind == "ParameterNotFound":
		return registry.WithHint(errors.New("there is no such parameter"),
			"Create it with `aws ssm put-parameter --type SecureString`.")
	case kind == "AccessDeniedException":
		return registry.WithHint(errors.New("the function's role may not read it"),
			"If the parameter has a KMS key of your own, let the role decrypt with it.")
	case status >= http.StatusInternalServerError, kind == "ThrottlingException":
		return fmt.Errorf("%w: SSM returns %d", registry.ErrUnavailable, status)
	}
	return fmt.Errorf("SSM returns %d %s", status, cmp.Or(http.StatusText(status), "an unknown status"))
}
