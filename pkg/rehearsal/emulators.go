package rehearsal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/truora/minidyn/server"
)

// versitygw is where scripts/test puts the S3 server, within the checkout.
const versitygw = ".tools/versitygw-v1.8.0/versitygw"

// Credentials of the emulated services, as the environment of a function holds them.
const (
	AccessKey = "AKIDREHEARSAL"
	SecretKey = "rehearsal-secret"
	Region    = "eu-central-1"
)

// Config is an AWS configuration that reaches a service at a URL.
func Config(url string) aws.Config {
	return aws.Config{Region: Region, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")}
}

// DynamoDB is an emulated DynamoDB in this process.
type DynamoDB struct {
	URL    string
	server *httptest.Server
	meter  *meter
}

// StartDynamoDB starts an emulator that holds one table with the keys pk and sk.
func StartDynamoDB(ctx context.Context, table string) (*DynamoDB, error) {
	d := &DynamoDB{meter: &meter{next: server.NewServer()}}
	d.server = httptest.NewServer(d.meter)
	d.URL = d.server.URL
	_, err := dynamodb.NewFromConfig(Config(d.URL)).CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("starting DynamoDB: %w", err)
	}
	return d, nil
}

// Reads returns what has been read since it was last asked for.
func (d *DynamoDB) Reads() Reads { return d.meter.take() }

// Close ends the emulator.
func (d *DynamoDB) Close() { d.server.Close() }

// S3 is an S3 server, in a process of its own, that checks signatures, expiry, conditions and checksums as S3 does.
type S3 struct {
	URL string
	cmd *exec.Cmd
	out bytes.Buffer
}

// ErrNoS3 says that scripts/test has not built the S3 server.
var ErrNoS3 = errors.New("the S3 server is not there: scripts/test builds it")

// StartS3 starts a server with one empty bucket, whose objects are files below dir. It keeps versions where that is enabled.
func StartS3(ctx context.Context, dir, bucket string) (*S3, error) {
	path, err := inCheckout(versitygw)
	if err != nil {
		return nil, ErrNoS3
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"buckets", "sidecar", "versions"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	s := &S3{URL: "http://" + address}
	s.cmd = exec.CommandContext(ctx, path, "--port", address, "--region", Region, "--quiet", "posix", "--sidecar", filepath.Join(dir, "sidecar"), "--versioning-dir", filepath.Join(dir, "versions"), filepath.Join(dir, "buckets"))
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+AccessKey, "ROOT_SECRET_ACCESS_KEY="+SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting S3: %w", err)
	}
	client := s3.NewFromConfig(Config(s.URL), func(o *s3.Options) { o.UsePathStyle = true })
	for attempt := 0; ; attempt++ {
		_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket})
		if err == nil {
			return s, nil
		}
		if attempt == 100 {
			s.Close()
			return nil, fmt.Errorf("starting S3: %w\n%s", err, &s.out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Close ends the server.
func (s *S3) Close() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freeAddress returns a loopback address with a port that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Moto is moto_server, which emulates so much of AWS that CDK can deploy to it.
type Moto struct {
	// URL has the host localhost, as CDK needs it.
	URL   string
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan struct{}
}

// ErrNoMoto says that moto_server is not on PATH.
var ErrNoMoto = errors.New("moto_server is not on PATH")

// StartMoto starts an empty account on a free port.
func StartMoto(ctx context.Context) (*Moto, error) {
	path, err := exec.LookPath("moto_server")
	if err != nil {
		return nil, ErrNoMoto
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	m := &Moto{URL: "http://localhost:" + port, ended: make(chan struct{})}
	m.cmd = exec.CommandContext(ctx, path, "-H", "127.0.0.1", "-p", port)
	m.cmd.Stdout, m.cmd.Stderr = &m.out, &m.out
	startGroup(m.cmd) // it may be a script that starts the server
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting moto_server: %w", err)
	}
	go func() {
		_ = m.cmd.Wait()
		close(m.ended)
	}()
	client := sts.NewFromConfig(Config(m.URL), func(o *sts.Options) { o.RetryMaxAttempts = 1 })
	for attempt := 0; ; attempt++ {
		_, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err == nil {
			return m, nil
		}
		select {
		case <-m.ended:
			return nil, fmt.Errorf("moto_server has ended:\n%s", &m.out)
		case <-ctx.Done():
			m.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if attempt == 150 {
			m.Close()
			return nil, fmt.Errorf("starting moto_server: %w\n%s", err, &m.out)
		}
	}
}

// Env is the environment in which programs find the account, in place of what they would find otherwise.
func (m *Moto) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + m.URL, "AWS_REGION=" + Region, "AWS_DEFAULT_REGION=" + Region, "AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey,
		"AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// Close ends the server.
func (m *Moto) Close() {
	endGroup(m.cmd)
	<-m.ended
}
