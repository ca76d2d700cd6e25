package clients

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// note is the path of the provider's source, within the checkout.
const note = "internal/testkit/clients/provider"

// Platform returns this machine's platform in the form of registries.
func Platform() string { return runtime.GOOS + "_" + runtime.GOARCH }

// BuildProvider builds the provider note for platforms such as linux_amd64. It
// writes the files that goreleaser writes for a release to dir, without the
// signature, which [keys.SigningKey] creates. The same source, Go and version
// give the same bytes.
func BuildProvider(ctx context.Context, dir, version string, platforms []string) error {
	files, err := release(ctx, version, platforms)
	if err != nil {
		return fmt.Errorf("cannot build provider note %s: %w", version, err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// release returns the files of a release by name.
func release(ctx context.Context, version string, platforms []string) (map[string][]byte, error) {
	source, err := programs.InCheckout(note)
	if err != nil {
		return nil, err
	}
	license, err := programs.InCheckout("LICENSE")
	if err != nil {
		return nil, err
	}
	// Each call has its own folder, since tests of several packages may build
	// at the same time.
	scratch, err := os.MkdirTemp("", "provider-note-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	prefix := "terraform-provider-note_" + version + "_"
	files := map[string][]byte{prefix +
		"manifest.json": []byte(`{"version":1,"metadata":{"protocol_versions":["6.0"]}}` + "\n")}
	for _, platform := range platforms {
		binary := filepath.Join(scratch, platform)
		if err := compile(ctx, source, binary, version, platform); err != nil {
			return nil, err
		}
		name := "terraform-provider-note_v" + version
		if strings.HasPrefix(platform, "windows_") {
			name += ".exe"
		}
		content, err := pack([]packed{
			{"LICENSE", license, 0o644},
			{"README.md", filepath.Join(source, "README.md"), 0o644},
			{name, binary, 0o755},
		})
		if err != nil {
			return nil, err
		}
		files[prefix+platform+".zip"] = content
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name])
		sums.WriteString(hex.EncodeToString(sum[:]) + "  " + name + "\n")
	}
	files[prefix+"SHA256SUMS"] = []byte(sums.String())
	return files, nil
}

// compile builds the provider's binary for one platform.
func compile(ctx context.Context, source, binary, version, platform string) error {
	goos, goarch, found := strings.Cut(platform, "_")
	if !found {
		return fmt.Errorf("platform %q is not OS_ARCH", platform)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X main.version="+version, "-o", binary, ".")
	cmd.Dir = source
	// GOFLAGS and a workspace apply to the checkout's own module.
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("for %s: %w\n%s", platform, err, out)
	}
	return nil
}

// packed is a file of a zip, with its name there and its path on disk.
type packed struct {
	name, path string
	mode       fs.FileMode
}

// pack returns a zip of files.
func pack(files []packed) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	// Under the race detector, the default level takes four times as long.
	z.RegisterCompressor(zip.Deflate,
		func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate,
			Modified: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(f.mode)
		w, err := z.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// WriteMirrorFolder writes the zips of a release to a folder, with the
// documents that the clients' `providers mirror` writes.
func WriteMirrorFolder(release, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	zips, err := filepath.Glob(filepath.Join(release, "*.zip"))
	if err != nil {
		return err
	}
	type archive struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes"`
	}
	archives := make(map[string]map[string]archive) // by version and platform
	for _, path := range zips {
		name := filepath.Base(path)
		parts := strings.SplitN(strings.TrimSuffix(name, ".zip"), "_", 3)
		if len(parts) != 3 {
			return fmt.Errorf("%s does not have the name of a provider's zip", name)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
		hash, err := dirhash.HashZip(path, dirhash.Hash1)
		if err != nil {
			return err
		}
		if archives[parts[1]] == nil {
			archives[parts[1]] = make(map[string]archive)
		}
		archives[parts[1]][parts[2]] = archive{name, []string{hash}}
	}
	documents := map[string]any{}
	versions := make(map[string]struct{})
	for version, platforms := range archives {
		documents[version+".json"] = map[string]any{"archives": platforms}
		versions[version] = struct{}{}
	}
	documents["index.json"] = map[string]any{"versions": versions}
	for name, document := range documents {
		text, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
