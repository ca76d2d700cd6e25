package archive

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"path"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// headLength is how many bytes of a program are read. They identify its
// platform.
const headLength = 4 << 10

// machines maps the machine numbers of each executable format to GOARCH values.
var machines = struct{ elf, macho, pe map[uint32]string }{
	elf:   map[uint32]string{3: "386", 40: "arm", 62: "amd64", 183: "arm64", 22: "s390x", 243: "riscv64", 258: "loong64"},
	macho: map[uint32]string{0x01000007: "amd64", 0x0100000c: "arm64"},
	pe:    map[uint32]string{0x014c: "386", 0x01c4: "arm", 0x8664: "amd64", 0xaa64: "arm64"},
}

// RunsOn checks that clients can run the program on a platform, judging by its
// name, its mode and its first bytes. It accepts unknown formats such as scripts.
// It returns registry.ErrInvalid if clients cannot run the program there.
//
// Clients unpack the program with its mode in the zip. A program packed on
// Windows has no mode and is unpacked as 0666. Windows requires the extension
// .exe and no mode.
func (z ProviderZip) RunsOn(platform registry.Platform) error {
	format, arch := identify(z.head)
	want := "ELF"
	switch platform.OS {
	case "windows":
		want = "PE"
	case "darwin", "ios":
		want = "Mach-O"
	}
	if format != "" && format != want || arch != "" && arch != platform.Arch {
		return registry.WithHint(
			invalidZip("its %s program is built for %s and cannot run on %s",
				format, cmp.Or(arch, "an unknown architecture"), platform),
			"Check that the program was built for this platform and that the zip has the right name.")
	}
	isExe := strings.EqualFold(path.Ext(z.program.Path), ".exe")
	switch {
	case platform.OS == "windows" && !isExe:
		return registry.WithHint(
			invalidZip("the name of its program, %s, does not end in .exe, so clients cannot run it on %s", z.program.Path, platform),
			"Name the program %s.exe.", z.program.Path)
	case platform.OS != "windows" && !z.program.Executable:
		return registry.WithHint(
			invalidZip("its program, %s, is not executable, so clients cannot run it on %s", z.program.Path, platform),
			"Check that the zip has the program for this platform, and no other file whose name begins so. "+
				"Run `chmod +x` on it, and zip it on Linux or macOS.")
	}
	return nil
}

// identify returns the format and the architecture of a program. Either is
// empty if it is unknown.
func identify(head []byte) (format, arch string) {
	little, big := binary.LittleEndian, binary.BigEndian
	switch {
	case len(head) >= 20 && bytes.HasPrefix(head, []byte("\x7fELF")):
		var order binary.ByteOrder = little
		if head[5] == 2 {
			order = big
		}
		return "ELF", machines.elf[uint32(order.Uint16(head[18:]))]
	case len(head) >= 8 && little.Uint32(head) == 0xfeedfacf:
		return "Mach-O", machines.macho[little.Uint32(head[4:])]
	case len(head) >= 8 && big.Uint32(head) == 0xcafebabe: // for several architectures
		return "Mach-O", ""
	case len(head) >= 0x40 && bytes.HasPrefix(head, []byte("MZ")):
		at := int64(little.Uint32(head[0x3c:]))
		if at+6 > int64(len(head)) || !bytes.HasPrefix(head[at:], []byte("PE\x00\x00")) {
			return "PE", ""
		}
		return "PE", machines.pe[uint32(little.Uint16(head[at+4:]))]
	}
	return "", ""
}
