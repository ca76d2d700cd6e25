// Rehearse deploys the registry as its owner would and uses it as its clients would, in an emulator or in an account of
// AWS. scripts/rehearse builds and runs it.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/larder-registry/larder/pkg/rehearsal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rehearse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var (
		moto    = flag.Bool("moto", false, "rehearse in moto_server, which is started and ended")
		destroy = flag.Bool("destroy", false, "take down what a rehearsal has made")
		yes     = flag.Bool("yes", false, "do not ask")
		older   = flag.String("from", "", "deploy this commit first, and the source over it")
	)
	flag.Parse()
	r := rehearsal.Rehearsal{Checkout: ".", Older: *older, Endpoint: os.Getenv("AWS_ENDPOINT_URL"), Out: os.Stdout, Scenarios: rehearsal.Scenarios(), Ask: func(question string) bool {
		if *yes {
			return true
		}
		fmt.Printf("%s [y/N] ", question)
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		return strings.EqualFold(strings.TrimSpace(answer), "y")
	}}
	var err error
	if r.Checkout, err = os.Getwd(); err != nil {
		return err
	}
	if *moto {
		server, err := rehearsal.StartMoto(ctx)
		if err != nil {
			return err
		}
		defer server.Close()
		r.Endpoint, r.Env, r.Account = server.URL, server.Env(), rehearsal.Config(server.URL)
	} else if r.Account, err = config.LoadDefaultConfig(ctx); err != nil {
		return fmt.Errorf("AWS configuration: %w", err)
	}
	if *destroy {
		return r.Destroy(ctx)
	}
	return r.Run(ctx)
}
