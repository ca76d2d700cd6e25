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
	fastflate "github.com/klauspost/compress/flate"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// measured has the medians of several runs, by what they do with a release:
// publish, upload or verify. least has the minimum of the seconds.
type measured struct{ seconds, cpu, hash, least map[string]float64 }

// work returns the time for unpacking and uploading, in seconds, from the times
// of runs and the time for hashing.
func work(seconds map[string]float64, hashing float64) float64 {
	return seconds["verify"] - hashing + seconds["upload"]
}

// Publishing a provider of 11 zips of 100 MB takes only as long as the
// necessary work. The test compares it with an uploader and a verifier of the
// same files, which run alternately. It does not compare it with a fixed network
// speed, because only some processors unpack faster than 1 Gbit/s.
//
// A publish first hashes the zips, because it must verify the signature before
// it uploads anything. Then it unpacks them while it uploads them. That takes
// as long as the slower of the network and the processors.
//
// scripts/bench runs the test. Besides its log, the test prints a line of JSON
// for each run and each ratio.
func TestPublishTime(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	key := signingKey(t, "Ed25519")
	public := keyFile(t, key)
	for _, content := range []string{"random", "program"} {
		t.Run(content, func(t *testing.T) {
			dir := largeRelease(t, key, content)
			unbounded := measurePublishing(t, content, dir, public, 0, "publish", "upload", "verify")
			hashing := unbounded.hash["verify"]
			judgeTime(t, content+", unbounded", unbounded, hashing, work(unbounded.seconds, hashing))
			cpu := unbounded.cpu["publish"] / (unbounded.cpu["upload"] + unbounded.cpu["verify"])
			t.Logf("%s: publishing takes %.3f times the processors' time of uploading and verifying", content, cpu)
			if cpu > maxRatio {
				t.Errorf("%s: that is more than %.2f", content, maxRatio)
			}
			if content == "random" {
				return // random bytes take almost no time to unpack
			}
			// If the network is slower than the processors, publishing takes as
			// long as uploading, unless it unpacks before it uploads. The rate
			// is based on the minimum, because a busy machine would hide that.
			const longer = 1.5
			least := work(unbounded.least, hashing)
			rate := int(releaseSize(t, dir) / (longer * least))
			line := measurePublishing(t, content, dir, public, rate, "publish", "upload")
			judgeTime(t, fmt.Sprintf("%s, at %.2f Gbit/s", content, float64(rate)*8/1e9), line, hashing, least)
		})
	}
}

// maxRatio is the maximum ratio of the measured time to the necessary time.
// Unpacking before uploading takes about 1.5 times as long. Unpacking twice
// takes about 1.9 times the CPU time. Runs on a busy machine differ by less.
const maxRatio = 1.25

// judgeTime compares the time of publishing with the necessary time. hashing
// and work are in seconds.
func judgeTime(t *testing.T, what string, m measured, hashing, work float64) {
	t.Helper()
	publish, upload := m.seconds["publish"], m.seconds["upload"]
	ratio := publish / (hashing + max(upload, work))
	printJSON(t, struct {
		What     string  `json:"what"`
		Ratio    float64 `json:"ratio"`
		ToUpload float64 `json:"ratio_to_upload"`
	}{what, ratio, publish / upload})
	t.Logf(
		"%s: publishing takes %.3f times as long as it must, and %.3f times as long as uploading, by medians of %d runs",
		what,
		ratio,
		publish/upload,
		publishRuns,
	)
	if ratio > maxRatio {
		t.Errorf("%s: %.3f is more than %.2f", what, ratio, maxRatio)
	}
}

// publishRuns is the number of runs of each kind.
const publishRuns = 3

// measurePublishing runs the kinds in ways alternately. rate is the speed of
// the network in bytes per second, or 0 for no limit.
func measurePublishing(t *testing.T, content, dir, public string, rate int, ways ...string) measured {
	t.Helper()
	const maxPeak, maxReads = 128 << 20, 2.02
	seconds, cpu, hash := make(map[string][]float64), make(map[string][]float64), make(map[string][]float64)
	for range publishRuns {
		for _, how := range ways {
			f := upload(t, how, dir, public, rate)
			f.Content, f.How, f.Rate = content, how, rate
			printJSON(t, f)
			t.Logf(
				"%-8s %-8s at %9d B/s: %6.2f s, %5.2f s of processors, peak memory %3d MiB, %.3f bytes read per byte",
				content,
				how,
				rate,
				f.Seconds,
				f.CPU,
				f.Peak>>20,
				f.Reads,
			)
			seconds[how], cpu[how] = append(seconds[how], f.Seconds), append(cpu[how], f.CPU)
			hash[how] = append(hash[how], f.Hash)
			if how == "publish" && f.Peak > maxPeak {
				t.Errorf("%s: peak memory is %d MiB", content, f.Peak>>20)
			}
			if how == "publish" && f.Reads > maxReads {
				t.Errorf("%s: %.3f bytes are read for each of the zips", content, f.Reads)
			}
		}
	}
	m := measured{
		make(map[string]float64),
		make(map[string]float64),
		make(map[string]float64),
		make(map[string]float64),
	}
	for _, how := range ways {
		m.least[how] = slices.Min(seconds[how])
		m.seconds[how], m.cpu[how], m.hash[how] = median(seconds[how]), median(cpu[how]), median(hash[how])
	}
	return m
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

// largeRelease creates a release of 11 zips of 100 MB. They contain random
// bytes, or programs that unpack to three times the size.
func largeRelease(t *testing.T, key keys.SigningKey, content string) (dir string) {
	t.Helper()
	const size = 100_000_000
	var in io.Reader = rand.NewChaCha8([32]byte{})
	if content == "program" {
		self, err := os.ReadFile(os.Args[0]) // this program
		if err != nil {
			t.Fatal(err)
		}
		in = &repeated{content: self}
	}
	// All zips contain the same compressed program. It begins like a script, so
	// that it is valid on every platform.
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
	for _, platform := range []string{
		"darwin_amd64", "darwin_arm64", "freebsd_386", "freebsd_amd64", "freebsd_arm", "linux_386",
		"linux_amd64", "linux_arm", "linux_arm64", "windows_386", "windows_amd64",
	} {
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
		named := "terraform-provider-note_v1.0.0"
		if strings.HasPrefix(platform, "windows_") {
			named += ".exe"
		}
		h := &zip.FileHeader{
			Name:               named,
			Method:             zip.Deflate,
			CRC32:              sum.Sum32(),
			CompressedSize64:   uint64(packed.Len()),
			UncompressedSize64: uint64(unpacked),
		}
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

// repeated is a reader that repeats the same bytes without end.
type repeated struct {
	content []byte
	at      int
}

func (r *repeated) Read(b []byte) (int, error) {
	n := copy(b, r.content[r.at:])
	r.at = (r.at + n) % len(r.content)
	return n, nil
}

// figures are the measurements of one run.
type figures struct {
	Content string  `json:"content"`
	How     string  `json:"how"`
	Rate    int     `json:"rate"` // bytes per second; 0 for no limit
	Seconds float64 `json:"seconds"`
	// CPU is the CPU time of the process, in seconds.
	CPU float64 `json:"cpu"`
	// Hash is the time for hashing the zips, in seconds. Only verify measures
	// it.
	Hash float64 `json:"hash,omitempty"`
	// Peak is the peak memory of the process, in bytes.
	Peak int64 `json:"peak"`
	// Reads is the number of bytes read, divided by the size of the zips.
	Reads float64 `json:"reads"`
}

// upload runs uploader in its own process, with its own S3 server.
func upload(t *testing.T, how, dir, public string, rate int) (f figures) {
	t.Helper()
	at := t.TempDir()
	defer os.RemoveAll(at) // after the run and not after the test, because it contains a gigabyte
	server, err := s3test.Start(t.Context(), at, "bench")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cmd := exec.CommandContext(
		t.Context(),
		"uploader",
		how,
		dir,
		public,
		filepath.Join(at, "larder.db"),
		server.URL,
		strconv.Itoa(rate),
	)
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

// sizeOf returns the total size of files, in bytes.
func sizeOf(paths []string) (size int64, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// releaseSize returns the total size of a release's zips, in bytes.
func releaseSize(t *testing.T, dir string) float64 {
	t.Helper()
	zips, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil {
		t.Fatal(err)
	}
	size, err := sizeOf(zips)
	if err != nil {
		t.Fatal(err)
	}
	return float64(size)
}

// uploader is the main function of a program that publishes a release, or
// uploads or verifies its zips, and prints its figures.
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
	table, err := sqlite.Create(ctx, database)
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
	size, err := sizeOf(zips)
	if err != nil {
		return f, err
	}
	cpuBefore := cpuTime()
	before, err := ofThisProcess("io", "rchar:")
	if err != nil {
		return f, err
	}
	begun := time.Now()
	switch how {
	case "publish":
		p := publish.Publisher{Catalog: all, Objects: s3.New(config, "bench", s3.Options{PathStyle: true})}
		_, err = p.Provider(
			ctx,
			rules.Provider{Dir: dir, Address: registry.Provider{Namespace: "acme", Type: "note"}},
		)
	case "upload":
		err = uploadPlainly(ctx, config, dir)
	default:
		f.Hash, err = verifyPlainly(ctx, dir, zips)
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

// uploadPlainly uploads the zips of a release as fast as the SDK allows. It
// takes the sums from SHA256SUMS, so that it reads each zip once.
func uploadPlainly(ctx context.Context, config aws.Config, dir string) error {
	sums, err := releaseSums(dir)
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
				return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc(
					"KnownPayloadHash",
					func(
						ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
					) (middleware.FinalizeOutput, middleware.Metadata, error) {
						return next.HandleFinalize(v4.SetPayloadHash(ctx, sum.SHA256), in)
					},
				), "ComputePayloadHash", middleware.Before)
			}))
			return err
		})
	}
	return group.Wait()
}

func releaseSums(dir string) ([]signing.Sum, error) {
	text, err := os.ReadFile(filepath.Join(dir, "terraform-provider-note_1.0.0_SHA256SUMS"))
	if err != nil {
		return nil, err
	}
	return signing.ParseSums(text)
}

// verifyPlainly does the work of verifying a release. It hashes each zip once,
// then unpacks each zip once and hashes its files. It returns the time of the
// first part, in seconds.
func verifyPlainly(ctx context.Context, dir string, zips []string) (hashing float64, err error) {
	sums, err := releaseSums(dir)
	if err != nil {
		return 0, err
	}
	each := func(verify func(path string) error) error {
		group, _ := errgroup.WithContext(ctx)
		group.SetLimit(4)
		for _, path := range zips {
			group.Go(func() error { return verify(path) })
		}
		return group.Wait()
	}
	begun := time.Now()
	err = each(func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, f); err != nil {
			return err
		}
		want := signing.Sum{SHA256: hex.EncodeToString(hash.Sum(nil)), Filename: filepath.Base(path)}
		if !slices.Contains(sums, want) {
			return fmt.Errorf("SHA256SUMS does not have %s", want.Filename)
		}
		return nil
	})
	hashing = time.Since(begun).Seconds()
	if err != nil {
		return hashing, err
	}
	return hashing, each(func(path string) error {
		packed, err := zip.OpenReader(path)
		if err != nil {
			return err
		}
		defer packed.Close()
		packed.RegisterDecompressor(zip.Deflate, fastflate.NewReader)
		for _, file := range packed.File {
			unpacked, err := file.Open()
			if err != nil {
				return err
			}
			if _, err := io.Copy(sha256.New(), unpacked); err != nil { // and its CRC-32
				return errors.Join(err, unpacked.Close())
			}
			if err := unpacked.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// limitedClient returns the SDK's HTTP client. All its connections together
// send at most perSecond bytes per second, or without limit if it is 0.
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

// limiter limits the bytes per second of several connections.
type limiter struct {
	rate float64
	mu   sync.Mutex
	free time.Time // when the next bytes can be sent
}

// take waits until n bytes can be sent.
func (l *limiter) take(n int) {
	l.mu.Lock()
	// If a goroutine wakes up late, the lost time is made up.
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

// ofThisProcess returns the number in a field of a file in /proc/self.
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
