// Package logged counts the downloads of a deployed registry, and the last uses
// of its tokens. CloudWatch sends those lines of the request log that count to
// a function, in batches. The function adds them to the table.
//
// Counts are approximate. CloudWatch or Lambda can deliver a batch again, which
// the items recognize only for a short time. A batch that Lambda could not
// process three times is lost.
package logged

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
)

// Pattern returns the filter pattern of CloudWatch for the lines that count:
// downloads, and the first use of a token in an hour. Listings, which clients
// request most often, are not among them.
func Pattern() string {
	fields := []string{`($.token_id = "*")`}
	for _, kind := range kinds {
		fields = append(fields, fmt.Sprintf("($.download = %q)", kind))
	}
	slices.Sort(fields)
	return "{ " + strings.Join(slices.Compact(fields), " || ") + " }"
}

// kinds are the log's names of the kinds of downloads, by the first part of a
// path.
var kinds = map[string]requestlog.Download{
	"modules": requestlog.ModuleDownload, "providers": requestlog.ProviderDownload,
	"mirror": requestlog.MirrorDownload, "mirror-modules": requestlog.MirrorDownload,
}

// The limits of a batch. CloudWatch sends at most 6 MiB, compressed and in
// Base64.
const (
	maxBatch  = 32 << 20 // bytes, uncompressed
	maxRows   = 1000     // versions and days, and tokens
	maxCaller = 256      // bytes of a name
	// oldest is the maximum age of a line. CloudWatch tries to deliver one for
	// a day.
	oldest = 3 * 24 * time.Hour
)

// Event is what CloudWatch sends: a [batch], compressed with gzip.
//
// Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/SubscriptionFilters.html#LambdaFunctionExample.
type Event struct {
	Logs struct {
		Data []byte `json:"data"`
	} `json:"awslogs"`
}

// batch has lines of one log group.
type batch struct {
	Lines []struct {
		ID      string `json:"id"`
		At      int64  `json:"timestamp"` // milliseconds since 1970
		Message string `json:"message"`
	} `json:"logEvents"`
}

// line has the fields of a line of the request log that count.
type line struct {
	Message  string `json:"message"`
	Download string `json:"download"`
	Address  string `json:"address"`
	Version  string `json:"version"`
	Caller   string `json:"caller"`
	TokenID  string `json:"token_id"`
}

// Store stores counts. Adding the same batch again soon changes nothing.
type Store interface {
	AddDownloads(ctx context.Context, batch string, a registry.Address, d registry.DailyDownloads) error
	AddTotal(ctx context.Context, batch string, a registry.Address, d registry.Downloads) error
	UseToken(ctx context.Context, id string, at time.Time) error
}

// Counter adds batches to a store.
type Counter struct {
	store Store
	log   *slog.Logger
	now   func() time.Time
}

// NewCounter returns a counter that logs batches that it cannot read.
func NewCounter(store Store, log *slog.Logger, now func() time.Time) *Counter {
	return &Counter{store, log, now}
}

// Do adds a batch. It ignores lines that no release has logged. If the store
// fails, it returns an error after it has tried everything, so that Lambda
// tries again.
func (c *Counter) Do(ctx context.Context, e Event) (struct{}, error) {
	found, err := c.read(e)
	if err != nil {
		// Another attempt would fail too.
		c.log.LogAttrs(ctx, slog.LevelWarn, "cannot read a batch of the request log", slog.Any("error", err))
		return struct{}{}, nil
	}
	if found.dropped > 0 {
		c.log.LogAttrs(ctx, slog.LevelWarn, "some downloads are not counted, because there are too many different ones",
			slog.Int("dropped", found.dropped), slog.Int("rows", maxRows))
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(found.addresses)) {
		a := found.addresses[path]
		for _, k := range slices.SortedFunc(maps.Keys(a.days), compareDays) {
			d := registry.DailyDownloads{Day: k.day, Version: k.version, Callers: a.days[k]}
			errs = append(errs, c.store.AddDownloads(ctx, a.batch, a.Address, d))
		}
		errs = append(errs, c.store.AddTotal(ctx, a.batch, a.Address, a.total))
	}
	for _, id := range slices.Sorted(maps.Keys(found.tokens)) {
		errs = append(errs, c.store.UseToken(ctx, id, found.tokens[id]))
	}
	return struct{}{}, errors.Join(errs...)
}

// sums are the counts of a batch.
type sums struct {
	addresses map[string]*address // by path
	tokens    map[string]time.Time
	rows      int
	dropped   int
}

// address has the counts of an address.
type address struct {
	registry.Address
	// batch identifies the lines: it is made from the ID of the first one.
	batch string
	days  map[dayKey]map[string]registry.Downloads
	total registry.Downloads
}

type dayKey struct {
	day     time.Time
	version registry.Version
}

func compareDays(a, b dayKey) int {
	return cmp.Or(a.day.Compare(b.day), registry.CompareVersions(a.version, b.version))
}

// read counts the lines of a batch.
func (c *Counter) read(e Event) (*sums, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(e.Logs.Data))
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: unpacked, N: maxBatch}
	var b batch
	if err := json.NewDecoder(limited).Decode(&b); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("it has more than %d bytes", maxBatch)
		}
		return nil, err
	}
	found := &sums{addresses: make(map[string]*address), tokens: make(map[string]time.Time)}
	now := c.now()
	for _, one := range b.Lines {
		var l line
		at := time.UnixMilli(one.At).UTC()
		if age := now.Sub(at); age > oldest || age < -time.Hour {
			continue
		}
		if json.Unmarshal([]byte(one.Message), &l) == nil && l.Message == "request" {
			found.add(one.ID, l, at)
		}
	}
	return found, nil
}

// add counts a line.
func (s *sums) add(id string, l line, at time.Time) {
	if isTokenID(l.TokenID) {
		last, listed := s.tokens[l.TokenID]
		if s.hasRoom(listed) && at.After(last) {
			s.tokens[l.TokenID] = at
		}
	}
	a, err := usage.ParseAddress(l.Download, l.Address)
	if err != nil {
		return
	}
	version, err := registry.ParseVersion(l.Version)
	if err != nil {
		return
	}
	k := dayKey{at.Truncate(24 * time.Hour), version}
	known := s.addresses[a.Path()]
	if !s.hasRoom(known != nil && known.days[k] != nil) {
		return
	}
	if known == nil {
		sum := sha256.Sum256([]byte(id))
		known = &address{Address: a, batch: hex.EncodeToString(sum[:6]), days: make(map[dayKey]map[string]registry.Downloads)}
		s.addresses[a.Path()] = known
	}
	if known.days[k] == nil {
		known.days[k] = make(map[string]registry.Downloads)
	}
	caller := strings.ToValidUTF8(l.Caller[:min(len(l.Caller), maxCaller)], "")
	one := registry.Downloads{Count: 1, Last: at.Truncate(time.Second)}
	known.days[k][caller] = known.days[k][caller].Plus(one)
	known.total = known.total.Plus(one)
}

// hasRoom reports whether a row may be counted, which is listed already or not.
func (s *sums) hasRoom(listed bool) bool {
	switch {
	case listed:
	case s.rows >= maxRows:
		s.dropped++
		return false
	default:
		s.rows++
	}
	return true
}

// isTokenID reports whether a text has the form of [registry.TokenID].
func isTokenID(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == 6
}
