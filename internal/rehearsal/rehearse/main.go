// Rehearse deploys the registry like its owner would, and uses it like its
// clients would, in an emulator or in an AWS account. scripts/rehearse builds
// and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/larder-registry/larder/internal/rehearsal"
	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

const usage = "usage: scripts/rehearse [--moto | --destroy] [--aws [--throttle]] [--from COMMIT] [--restore] [--yes]; " +
	"see --help"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted: run it again, or with --destroy")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rehearse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	var (
		moto    = flag.Bool("moto", false, "")
		destroy = flag.Bool("destroy", false, "")
		yes     = flag.Bool("yes", false, "")
		older   = flag.String("from", "", "")
		restore = flag.Bool("restore", false, "")
		// checks runs against an emulator too, to try it.
		checks   = flag.Bool("aws", false, "")
		throttle = flag.Bool("throttle", false, "")
	)
	flag.Parse()
	if flag.NArg() > 0 || *throttle && !*checks ||
		*destroy && (*moto || *older != "" || *restore || *checks) {
		return errors.New(usage)
	}
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	r := rehearsal.Rehearsal{Checkout: checkout, Older: *older, Restore: *restore, Out: os.Stdout,
		Checks: *checks, Throttle: *throttle,
		Scenarios: rehearsal.Scenarios(), Confirm: func(question string) bool {
			if *yes {
				return true
			}
			confirmed, _ := terminal.Confirm(ctx, os.Stdin, os.Stdout, question) // an interrupt means no
			return confirmed
		}}
	if *moto {
		server, err := rehearsal.StartMoto(ctx)
		if err != nil {
			return err
		}
		defer server.Close()
		r.Endpoint, r.Env, r.Account = server.URL, server.Env(), awstest.Config(server.URL)
	} else if err := find(ctx, &r); err != nil {
		return err
	}
	if *destroy {
		return r.Destroy(ctx)
	}
	if err := r.Run(ctx); err != nil || !*moto {
		return err
	}
	return r.Destroy(ctx)
}

// find finds the account in the same way as the AWS command line.
func find(ctx context.Context, r *rehearsal.Rehearsal) (err error) {
	if r.Account, err = config.LoadDefaultConfig(ctx); err != nil {
		return fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if r.Account.Region == "" {
		return errors.New("there is no AWS region: set AWS_REGION")
	}
	if _, err := r.Account.Credentials.Retrieve(ctx); err != nil {
		return errors.New("there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and " +
			"AWS_SECRET_ACCESS_KEY (any values for an emulator)")
	}
	r.Endpoint = os.Getenv("AWS_ENDPOINT_URL")
	if r.Endpoint == "" && r.Account.BaseEndpoint == nil {
		return nil
	}
	// Without a confirmation, the rehearsal must stay on this machine.
	if u, err := url.Parse(r.Endpoint); err != nil || u.Scheme != "http" || u.Hostname() != "localhost" {
		return fmt.Errorf("invalid AWS_ENDPOINT_URL %q: it must be an emulator on this machine, as http://localhost:PORT",
			r.Endpoint)
	}
	r.Account.BaseEndpoint = &r.Endpoint
	r.Account.ConfigSources = nil
	return nil
}
