package archive

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestRunsOn(t *testing.T) {
	t.Parallel()
	elf := func(machine uint16) []byte {
		b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 40)...)
		binary.LittleEndian.PutUint16(b[18:], machine)
		return b
	}
	macho := func(cpu uint32) []byte { return binary.LittleEndian.AppendUint32([]byte{0xcf, 0xfa, 0xed, 0xfe}, cpu) }
	pe := func(machine uint16) []byte {
		b := make([]byte, 0x100)
		copy(b, "MZ")
		b[0x3c] = 0x80
		copy(b[0x80:], "PE\x00\x00")
		binary.LittleEndian.PutUint16(b[0x84:], machine)
		return b
	}
	s390x := append([]byte("\x7fELF\x02\x02\x01"), make([]byte, 40)...)
	binary.BigEndian.PutUint16(s390x[18:], 22)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		head     []byte
		platform string
		runs     bool
	}{
		{"this test", own[:headLength], runtime.GOOS + "_" + runtime.GOARCH, true},
		{"this test", own[:headLength], runtime.GOOS + "_s390x", runtime.GOARCH == "s390x"},
		{"linux", elf(62), "linux_amd64", true},
		{"linux", elf(62), "freebsd_amd64", true},
		{"linux", elf(62), "linux_arm64", false},
		{"linux", elf(62), "windows_amd64", false},
		{"linux", elf(62), "darwin_amd64", false},
		{"linux arm64", elf(183), "linux_arm64", true},
		{"linux arm64", elf(183), "linux_amd64", false},
		{"an unknown machine", elf(999), "linux_amd64", true},
		{"big endian", s390x, "linux_s390x", true},
		{"big endian", s390x, "linux_amd64", false},
		{"darwin", macho(0x0100000c), "darwin_arm64", true},
		{"darwin", macho(0x0100000c), "darwin_amd64", false},
		{"darwin", macho(0x01000007), "linux_amd64", false},
		{"universal", []byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 2}, "darwin_arm64", true},
		{"windows", pe(0x8664), "windows_amd64", true},
		{"windows", pe(0x8664), "windows_arm64", false},
		{"windows", pe(0x8664), "linux_amd64", false},
		{"windows cut", pe(0x8664)[:0x60], "windows_amd64", true},
		{"a script", []byte("#!/bin/sh\n"), "linux_amd64", true},
		{"nothing", nil, "linux_amd64", true},
	} {
		platform, err := registry.ParsePlatform(test.platform)
		if err != nil {
			t.Fatal(err)
		}
		program := File{Path: "terraform-provider-x", Executable: true}
		if platform.OS == "windows" {
			program.Path += ".exe"
		}
		err = (ProviderZip{head: test.head, program: program}).RunsOn(platform)
		if (err == nil) != test.runs {
			t.Errorf("%s on %s: got error %v, want success: %t", test.name, test.platform, err, test.runs)
		}
		if err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s on %s: got error %v, want ErrInvalid", test.name, test.platform, err)
		}
	}
}

// Clients run a program by its name and mode.
func TestRunsByName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		program    string
		executable bool
		platform   string
		runs       bool
	}{
		{"terraform-provider-x", true, "linux_amd64", true},
		{"terraform-provider-x", false, "linux_amd64", false},
		{"terraform-provider-x", false, "windows_amd64", false},
		{"terraform-provider-x.md", false, "linux_amd64", false},
		{"terraform-provider-x.exe", true, "linux_amd64", true},
		{"terraform-provider-x.exe", false, "linux_amd64", false},
		{"terraform-provider-x.exe", false, "windows_amd64", true},
		{"terraform-provider-x_v1.0.0.EXE", false, "windows_arm64", true},
		{"terraform-provider-x", true, "windows_amd64", false},
		{"terraform-provider-x_v1.0.0", true, "windows_amd64", false},
	} {
		platform, err := registry.ParsePlatform(test.platform)
		if err != nil {
			t.Fatal(err)
		}
		err = (ProviderZip{program: File{Path: test.program, Executable: test.executable}}).RunsOn(platform)
		if (err == nil) != test.runs || err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s, executable %t, on %s: got error %v, want success: %t",
				test.program, test.executable, platform, err, test.runs)
		}
	}
}
