package rehearsal

import (
	"os"
	"strings"
	"testing"
)

// required says that what scripts/test builds must be there, and is not left out.
func required() bool { return os.Getenv("LARDER_REQUIRE_CLIENTS") != "" }

// EachClient runs a test with each real client, and says which are left out. Where scripts/test runs it, OpenTofu must
// be there.
func EachClient(t *testing.T, test func(*testing.T, Client)) {
	t.Helper()
	clients, missing := Clients()
	for _, why := range missing {
		if strings.HasPrefix(why, "tofu") && required() {
			t.Fatal(why)
		}
		t.Run(strings.Split(why, ":")[0], func(t *testing.T) { t.Skip("LEFT OUT:", why) })
	}
	for _, c := range clients {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// S3ForTest starts an S3 server that ends with the test. Where there is none the test is left out, unless scripts/test
// runs it.
func S3ForTest(t *testing.T, bucket string) *S3 {
	t.Helper()
	s, err := StartS3(t.Context(), t.TempDir(), bucket)
	if err != nil && !required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
