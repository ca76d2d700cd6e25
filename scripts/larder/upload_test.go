package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/signing"
)

// gigabit is 1 Gbit/s, in bytes.
const gigabit = 125_000_000

// To publish a provider of 11 zips of 100 MB takes hardly longer than to upload the files, which nothing could be faster
// than. scripts/bench runs it. Besides what the test logs, it prints a line of JSON for each run and each ratio.
func TestPublishTime(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	const rounds, maxRatio, maxPeak, maxReads = 3, 1.1, 128 << 20, 2.02
	key := signingKey(t, "Ed25519")
	public := keyFile(t, key)
	for _, content := range []string{"random", "program"} {
		dir := largeRelease(t, key, content)
		for _, rate := range []int{gigabit, 0} {
			took := make(map[string][]float64)
			for range rounds {
				for _, how := range []string{"publish", "plain"} {
					f := upload(t, how, dir, public, rate)
					f.Content, f.How, f.Rate = content, how, rate
					printJSON(t, f)
					t.Logf("%-8s %-8s at %9d B/s: %6.2f s, %5.2f s of processors, peak memory %3d MiB, %.3f bytes read per byte", content, how, rate, f.Seconds, f.CPU, f.Peak>>20, f.Reads)
					took[how] = append(took[how], f.Seconds)
					if how == "publish" && f.Peak > maxPeak {
						t.Errorf("%s: peak memory is %d MiB", content, f.Peak>>20)
					}
					if how == "publish" && f.Reads > maxReads {
						t.Errorf("%s: %.3f bytes are read for each of the zips", content, f.Reads)
					}
				}
			}
			ratio := median(took["publish"]) / median(took["plain"])
			printJSON(t, struct {
				Content string  `json:"content"`
				Rate    int     `json:"rate"`
				Ratio   float64 `json:"ratio"`
			}{content, rate, ratio})
			t.Logf("%-8s at %9d B/s: publishing takes %.3f times as long as uploading, by medians of %d runs", content, rate, ratio, rounds)
			// Without a bound of the line, programs unpack as fast as there are processors for it.
			if rate > 0 && ratio > maxRatio {
				t.Errorf("%s: that is more than %.2f", content, maxRatio)
			}
		}
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func printJSON(t *testing.T, v any) {
	t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
}

// largeRelease makes a release of 11 zips of 100 MB, of random bytes or of programs, which unpack to three times as much.
func largeRelease(t *testing.T, key keys.SigningKey, content string) (dir string) {
	t.Helper()
	const size = 100_000_000
	var in io.Reader = rand.NewChaCha8([32]byte{})
	if content == "program" {
		self, err := os.ReadFile(os.Args[0]) // this one
		if err != nil {
			t.Fatal(err)
		}
		in = &repeated{whole: self}
	}
	// It is compressed once. So that it can be a program of every platform, it begins as a script does.
	in = io.MultiReader(strings.NewReader("#!/bin/sh\n"), in)
	var packed bytes.Buffer
	deflate, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	sum, unpacked := crc32.NewIEEE(), int64(0)
	for packed.Len() < size {
		n, err := io.CopyN(io.MultiWriter(deflate, sum), in, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		unpacked += n
	}
	if err := deflate.Close(); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	const name = "terraform-provider-note_1.0.0"
	var sums strings.Builder
	for _, platform := range []string{"darwin_amd64", "darwin_arm64", "freebsd_386", "freebsd_amd64", "freebsd_arm", "linux_386", "linux_amd64", "linux_arm", "linux_arm64", "windows_386", "windows_amd64"} {
		f, err := os.Create(filepath.Join(dir, name+"_"+platform+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		z := zip.NewWriter(io.MultiWriter(f, hash))
		readme, err := z.Create("README.md")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(readme, "for", platform)
		h := &zip.FileHeader{Name: "terraform-provider-note_v1.0.0", Method: zip.Deflate, CRC32: sum.Sum32(), CompressedSize64: uint64(packed.Len()), UncompressedSize64: uint64(unpacked)}
		h.SetMode(0o755)
		program, err := z.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = program.Write(packed.Bytes())
		if err := errors.Join(err, z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s_%s.zip\n", hash.Sum(nil), name, platform)
	}
	writeFiles(t, dir, map[string]string{
		name + "_SHA256SUMS":    sums.String(),
		name + "_manifest.json": `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`,
	})
	if err := key.SignRelease(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// repeated is the same bytes again and again.
type repeated struct {
	whole []byte
	at    int
}

func (r *repeated) Read(b []byte) (int, error) {
	n := copy(b, r.whole[r.at:])
	r.at = (r.at + n) % len(r.whole)
	return n, nil
}

// figures are those of one run.
type figures struct {
	Content string  `json:"content"`
	How     string  `json:"how"`
	Rate    int     `json:"rate"` // bytes per second; 0 for no limit
	Seconds float64 `json:"seconds"`
	// CPU is what the process took of processors, in seconds.
	CPU float64 `json:"cpu"`
	// Peak is that of the memory, in bytes.
	Peak int64 `json:"peak"`
	// Reads are the bytes that were read for each of the zips.
	Reads float64 `json:"reads"`
}

// upload runs uploader in a process of its own, against a server of its own.
func upload(t *testing.T, how, dir, public string, rate int) (f figures) {
	t.Helper()
	at := t.TempDir()
	defer os.RemoveAll(at) // after the run and not the test, since it holds a gigabyte
	server, err := s3test.Start(t.Context(), at, "bench")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), "uploader", how, dir, public, filepath.Join(at, "larder.db"), server.URL, strconv.Itoa(rate))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(how, err)
	}
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// uploader is a program that publishes a release, or uploads its zips, and prints its figures.
func uploader() {
	f, err := runUploader(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runUploader(ctx context.Context, how, dir, public, database, url, rate string) (f figures, err error) {
	perSecond, err := strconv.Atoi(rate)
	if err != nil {
		return f, err
	}
	config := awstest.Config(url)
	config.HTTPClient = limitedClient(perSecond)
	table, err := sqlite.Open(ctx, database)
	if err != nil {
		return f, err
	}
	defer table.Close()
	armored, err := os.ReadFile(public)
	if err != nil {
		return f, err
	}
	key, err := signing.ParseKey(armored, time.Now())
	if err != nil {
		return f, err
	}
	all := catalog.New(table)
	if _, err := all.AddSigningKey(ctx, "acme", registry.SigningKey{ID: key.ID, ASCIIArmor: key.ASCIIArmor}); err != nil {
		return f, err
	}
	zips, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil {
		return f, err
	}
	var size int64
	for _, path := range zips {
		info, err := os.Stat(path)
		if err != nil {
			return f, err
		}
		size += info.Size()
	}
	cpuBefore := cpuTime()
	before, err := ofThisProcess("io", "rchar:")
	if err != nil {
		return f, err
	}
	begun := time.Now()
	if how == "publish" {
		p := publish.Publisher{Catalog: all, Objects: s3.New(config, "bench", s3.Options{PathStyle: true})}
		_, err = p.Provider(ctx, releases.Provider{Dir: dir, Address: registry.Provider{Namespace: "acme", Type: "note"}})
	} else {
		err = uploadPlainly(ctx, config, dir)
	}
	if err != nil {
		return f, err
	}
	f.Seconds, f.CPU = time.Since(begun).Seconds(), (cpuTime() - cpuBefore).Seconds()
	after, err := ofThisProcess("io", "rchar:")
	f.Reads = float64(after-before) / float64(size)
	peak, peakErr := ofThisProcess("status", "VmHWM:")
	f.Peak = peak << 10
	return f, errors.Join(err, peakErr)
}

// uploadPlainly uploads the zips of a release as fast as it can be done with the SDK: their sums are known, so that each is
// read once.
func uploadPlainly(ctx context.Context, config aws.Config, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "terraform-provider-note_1.0.0_SHA256SUMS"))
	if err != nil {
		return err
	}
	sums, err := signing.ParseSums(text)
	if err != nil {
		return err
	}
	client := awss3.NewFromConfig(config, func(o *awss3.Options) {
		o.UsePathStyle = true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, sum := range sums {
		group.Go(func() error {
			f, err := os.Open(filepath.Join(dir, sum.Filename))
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			raw, err := hex.DecodeString(sum.SHA256)
			if err != nil {
				return err
			}
			_, err = client.PutObject(ctx, &awss3.PutObjectInput{
				Bucket: aws.String("bench"), Key: &sum.Filename, Body: f, ContentLength: aws.Int64(info.Size()),
				ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(raw)), IfNoneMatch: aws.String("*"),
			}, awss3.WithAPIOptions(func(stack *middleware.Stack) error {
				return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("KnownPayloadHash",
					func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
						return next.HandleFinalize(v4.SetPayloadHash(ctx, sum.SHA256), in)
					}), "ComputePayloadHash", middleware.Before)
			}))
			return err
		})
	}
	return group.Wait()
}

// limitedClient is the SDK's HTTP client, whose connections send so many bytes a second in all; 0 is no limit.
func limitedClient(rate int) *awshttp.BuildableClient {
	client := awshttp.NewBuildableClient()
	if rate == 0 {
		return client
	}
	l := &limiter{rate: float64(rate)}
	return client.WithTransportOptions(func(transport *http.Transport) {
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return limitedConn{conn, l}, err
		}
	})
}

// limiter lets so many bytes a second go.
type limiter struct {
	rate float64
	mu   sync.Mutex
	free time.Time // when the line is free again
}

// take returns when n bytes have gone.
func (l *limiter) take(n int) {
	l.mu.Lock()
	// What a late sleeper has lost is made up for.
	if earliest := time.Now().Add(-10 * time.Millisecond); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	until := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(until))
}

type limitedConn struct {
	net.Conn
	limiter *limiter
}

func (c limitedConn) Write(b []byte) (sent int, err error) {
	for chunk := range slices.Chunk(b, 64<<10) {
		c.limiter.take(len(chunk))
		n, err := c.Conn.Write(chunk)
		if sent += n; err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// ofThisProcess returns a number that Linux tells in a file of /proc/self.
func ofThisProcess(file, name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/" + file)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), name)
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("/proc/self/%s has no %s", file, name)
	}
	return strconv.ParseInt(fields[0], 10, 64)
}
