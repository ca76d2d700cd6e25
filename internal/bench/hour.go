package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// hourGrown is the bound on the growth of memory and open files in the hour,
	// from the second third to the last. Go returns memory to the system in steps,
	// so equal work does not give exactly equal figures.
	hourGrown = 1.1
	// hourPublish is the interval between versions that are published.
	hourPublish = 10 * time.Second
	// noticed is how long after a renewal connections may still get the old
	// certificate. The server looks for new files every 10 seconds.
	noticed = 12 * time.Second
)

// measureHour sends the requests of a busy hour, which are n.hourInits inits,
// in n.hourTime and at a constant rate. Each init makes new connections. In the
// middle, the server's certificate is renewed as an ACME client does it.
func measureHour(ctx context.Context, larder, dir string, n amounts) (result, error) {
	issuer, err := newIssuer(dir)
	if err != nil {
		return result{}, err
	}
	if err := issuer.renew(); err != nil {
		return result{}, err
	}
	p, err := newLoadPublisher(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer p.data.Close()
	for i := range loadedModules + 1 {
		if err := p.publish(ctx, i); err != nil {
			return result{}, err
		}
	}
	token, digest := access.NewToken()
	if err := p.data.Catalog.AddToken(ctx, digest, registry.Token{Name: "bench", Scopes: []string{"read:**"}}); err != nil {
		return result{}, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return result{}, err
	}
	server, err := serve(ctx, larder, dir, "--listen", address, "--host", address, "--cert", issuer.cert, "--key", issuer.key)
	if err != nil {
		return result{}, err
	}
	defer server.close()
	server.roots, server.token = issuer.roots, token
	handshakes := &handshakes{}
	server.connected = handshakes.count

	running, stop := context.WithTimeout(ctx, n.hourTime)
	defer stop()
	var all sync.WaitGroup
	var published, renewed error
	all.Go(func() { published = p.runEvery(running, min(hourPublish, n.hourTime/4)) })
	all.Go(func() {
		select {
		case <-time.After(n.hourTime / 2):
			renewed = issuer.renew()
			handshakes.renewedAt(time.Now())
		case <-running.Done():
		}
	})
	var memory, files []float64
	all.Go(func() { memory, files = server.sample(running, min(time.Second, n.hourTime/12)) })
	begin := time.Now()
	clients := pace(running, n, server, p.ledger)
	took := time.Since(begin)
	stop()
	all.Wait()
	if err := errors.Join(ctx.Err(), published, renewed); err != nil {
		return result{}, err
	}
	return hourResult(clients, n, took, handshakes, memory, files, server)
}

// pace runs inits at a constant rate. An init that has to wait for one of
// n.clients clients begins late. It returns the clients when all inits ended.
func pace(ctx context.Context, n amounts, server *loaded, l *ledger) []*loadClient {
	begun := make(chan struct{}, n.hourInits)
	clients := make([]*loadClient, n.clients)
	var all sync.WaitGroup
	for i := range clients {
		clients[i] = &loadClient{server: server, ledger: l, took: make(map[string]times)}
		all.Go(func() {
			for range begun {
				clients[i].init(context.WithoutCancel(ctx))
			}
		})
	}
	tick := time.NewTicker(n.hourTime / time.Duration(n.hourInits))
	defer tick.Stop()
	for range n.hourInits {
		select {
		case <-tick.C:
		case <-ctx.Done(): // the ticker dropped ticks while the machine was busy
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			break
		}
		begun <- struct{}{}
	}
	close(begun)
	all.Wait()
	return clients
}

func hourResult(
	clients []*loadClient, n amounts, took time.Duration, h *handshakes, memory, files []float64, server *loaded,
) (result, error) {
	logged, err := server.errors()
	if err != nil {
		return result{}, err
	}
	var problems []error
	var every times
	inits := 0
	for _, c := range clients {
		problems = append(problems, c.problems...)
		inits += c.inits
		for _, t := range c.took {
			every = append(every, t...)
		}
	}
	if len(every) == 0 {
		return result{}, errors.New("no request was sent")
	}
	process := thirds(memory, files, hourGrown)
	process.title = "the server's process in that time"
	r := result{tables: []table{
		{
			title:   fmt.Sprintf("%d inits in %s", n.hourInits, n.hourTime),
			columns: []column{{"count", ""}, {"per second", ""}, {"median", "ms"}, {"99 of 100 within", "ms"}},
			rows: []row{
				{"requests of the hour", []*figure{is(float64(len(every))), is(float64(len(every)) / took.Seconds()),
					is(milliseconds(every.median())), is(milliseconds(every.percentile(99)))}},
				{"inits of the hour", []*figure{is(float64(inits)), is(float64(inits) / took.Seconds()), nil, nil}},
			},
		},
		{title: "renewal of the certificate", columns: []column{{"count", ""}}, rows: []row{
			{"connections before it", []*figure{is(h.number(0))}},
			{"connections with the new certificate", []*figure{is(h.number(1))}},
			{fmt.Sprintf("connections with the old one after %s", noticed), []*figure{atMost(float64(h.late), 0)}},
		}},
		{title: "faults of the hour", columns: []column{{"count", ""}}, rows: []row{
			{"requests and downloads of the hour", []*figure{atMost(count(problems, errRequest), 0)}},
			{"missing or incomplete versions", []*figure{atMost(count(problems, errMissing)+count(problems, errHalf), 0)}},
			{"errors in the log of the hour", []*figure{atMost(float64(len(logged)), 0)}},
		}},
		process,
	}}
	for _, problem := range problems[:min(len(problems), 10)] {
		r.lines = append(r.lines, problem.Error())
	}
	r.lines = append(r.lines, logged[:min(len(logged), 10)]...)
	if late := took - n.hourTime; late > n.hourTime/20 {
		r.lines = append(r.lines, fmt.Sprintf("the machine was too busy: the inits took %s longer than %s",
			late.Round(time.Second), n.hourTime))
	}
	return r, nil
}

// handshakes counts the connections by the serial number of the server's
// certificate.
type handshakes struct {
	mu      sync.Mutex
	serials map[string]int
	order   []string
	renewed time.Time
	late    int // with an old certificate, some time after the renewal
}

func (h *handshakes) count(state tls.ConnectionState) error {
	serial := state.PeerCertificates[0].SerialNumber.String()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serials == nil {
		h.serials = make(map[string]int)
	}
	if h.serials[serial] == 0 {
		h.order = append(h.order, serial)
	}
	h.serials[serial]++
	if serial == h.order[0] && !h.renewed.IsZero() && time.Since(h.renewed) > noticed {
		h.late++
	}
	return nil
}

func (h *handshakes) renewedAt(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = t
}

// number returns the number of connections with the certificate that clients
// saw as the i-th, or 0.
func (h *handshakes) number(i int) float64 {
	if i >= len(h.order) {
		return 0
	}
	return float64(h.serials[h.order[i]])
}

// issuer is a certificate authority that writes the files of a server's
// certificate.
type issuer struct {
	cert, key string
	roots     *x509.CertPool
	ca        *x509.Certificate
	caKey     *ecdsa.PrivateKey
	serial    int64
}

func newIssuer(dir string) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return &issuer{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), roots, ca, key, 1}, nil
}

// renew writes a new certificate and a new key. Each file appears complete.
func (i *issuer) renew() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return err
	}
	i.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(i.serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(crand.Reader, template, i.ca, key.Public(), i.caKey)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for path, block := range map[string]*pem.Block{
		i.key: {Type: "PRIVATE KEY", Bytes: secret}, i.cert: {Type: "CERTIFICATE", Bytes: der},
	} {
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// freeAddress returns a loopback address with a port that is free now.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
