package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// originPath is the path of an origin's provider registry protocol.
const originPath = "/v1/providers/"

// tinyProgram is the size of providers' programs, in bytes.
const tinyProgram = 1 << 10

// newOrigin returns a registry that serves versions of a provider for one
// platform, signed with a key. Their files are in dir.
func newOrigin(
	dir string, key keys.SigningKey, p registry.Provider, versions []registry.Version,
) (http.Handler, error) {
	platform := platforms[0]
	var listing protocol.ProviderListing
	sums := make(map[string]string) // of the zips, by name
	for _, v := range versions {
		listing.Versions = append(listing.Versions, protocol.ListedProvider{
			Version: v, Protocols: []string{"6.0"}, Platforms: []registry.Platform{platform},
		})
		at := filepath.Join(dir, v.String())
		if err := writeRelease(at, key, p.Type, v, platforms[:1], tinyProgram); err != nil {
			return nil, err
		}
		packed, err := os.ReadFile(filepath.Join(at, releasePrefix(p.Type, v)+platform.String()+".zip"))
		if err != nil {
			return nil, err
		}
		sums[v.String()] = sha256Hex(packed)
	}
	answer := func(w http.ResponseWriter, document any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document) // the client detects a truncated response
	}
	files := "/files/" + p.Type + "/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+originPath+"{namespace}/{type}/versions", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, listing)
	})
	download := "GET " + originPath + "{namespace}/{type}/{version}/download/{os}/{arch}"
	mux.HandleFunc(download, func(w http.ResponseWriter, r *http.Request) {
		version := r.PathValue("version")
		prefix := files + version + "/terraform-provider-" + p.Type + "_" + version + "_"
		name := prefix + platform.String() + ".zip"
		answer(w, protocol.ProviderDownload{
			Protocols: []string{"6.0"}, OS: platform.OS, Arch: platform.Arch,
			Filename: name[strings.LastIndex(name, "/")+1:], DownloadURL: name, SHASum: sums[version],
			SHASumsURL: prefix + "SHA256SUMS", SHASumsSignatureURL: prefix + "SHA256SUMS.sig",
			SigningKeys: protocol.ProviderKeys{GPGPublicKeys: []protocol.PublicKey{{ASCIIArmor: string(key.Public)}}},
		})
	})
	mux.Handle("GET "+files, http.StripPrefix(files, http.FileServer(http.Dir(dir))))
	return mux, nil
}
