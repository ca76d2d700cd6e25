package rules

import (
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// platforms are the platforms that Go can build for since Go 1.15, which are those
// that clients request. The last line has those that Go 1.26 dropped.
//
// Source: `go tool dist list`.
var platforms = strings.Fields(`
aix_ppc64 android_386 android_amd64 android_arm android_arm64 darwin_amd64 darwin_arm64 dragonfly_amd64 freebsd_386
freebsd_amd64 freebsd_arm freebsd_arm64 illumos_amd64 ios_amd64 ios_arm64 js_wasm linux_386 linux_amd64 linux_arm
linux_arm64 linux_loong64 linux_mips linux_mips64 linux_mips64le linux_mipsle linux_ppc64 linux_ppc64le linux_riscv64
linux_s390x netbsd_386 netbsd_amd64 netbsd_arm netbsd_arm64 openbsd_386 openbsd_amd64 openbsd_arm openbsd_arm64
openbsd_ppc64 openbsd_riscv64 plan9_386 plan9_amd64 plan9_arm solaris_amd64 wasip1_wasm windows_386 windows_amd64
windows_arm64
freebsd_riscv64 openbsd_mips64 windows_arm
`)

// otherNames maps names of systems and architectures to those of Go.
var otherNames = map[string]string{
	"macos": "darwin", "osx": "darwin", "mac": "darwin", "win": "windows", "win32": "windows", "win64": "windows",
	"aarch64": "arm64", "armv8": "arm64", "x86_64": "amd64", "x64": "amd64", "x86": "386", "i386": "386", "i686": "386",
	"armv5": "arm", "armv6": "arm", "armv7": "arm", "armhf": "arm", "armv6l": "arm", "armv7l": "arm",
}

// MeantPlatform returns the platform that clients request in place of a text that
// is none, or an empty string.
func MeantPlatform(text string) string {
	os, arch, _ := strings.Cut(strings.ToLower(text), "_")
	if name := otherNames[os]; name != "" {
		os = name
	}
	if name := otherNames[arch]; name != "" {
		arch = name
	}
	if os == "darwin" && (arch == "all" || arch == "universal") {
		arch = "arm64"
	}
	if named := os + "_" + arch; slices.Contains(platforms, named) {
		return named
	}
	near, _ := suggest.Similar(os+"_"+arch, platforms)
	return near
}

// CheckPlatforms returns registry.ErrInvalid if no client requests one of the
// platforms of a new version. allowed are those that clients of a later release
// request.
func CheckPlatforms(zips map[string]registry.Platform, allowed []string) error {
	for _, text := range allowed {
		if _, err := registry.ParsePlatform(text); err != nil {
			return err
		}
	}
	var names []string
	for name, platform := range zips {
		if p := platform.String(); !slices.Contains(platforms, p) && !slices.Contains(allowed, p) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var problems errs.Problems
	for _, name := range names {
		_ = problems.Add(errNoPlatform(name, zips[name])) // it is ErrInvalid
	}
	return problems.Err("")
}

func errNoPlatform(name string, platform registry.Platform) error {
	err := invalidRelease("no client requests the platform %s of %s", platform, name)
	if platform.OS == "darwin" && MeantPlatform(platform.String()) == "darwin_arm64" {
		return registry.WithHint(err, "Did you mean darwin_arm64? Zip the program again for darwin_amd64.")
	}
	if meant := MeantPlatform(platform.String()); meant != "" {
		return registry.WithHint(err, "Did you mean %s?", meant)
	}
	return registry.WithHint(err, "If a later release of a client requests it, use `--allow-platform %s`.", platform)
}
