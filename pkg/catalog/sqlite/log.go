package sqlite

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
)

// logHeader and logFrame are the sizes in bytes of the header of a write-ahead
// log and of the header of each page in it.
//
// Source: https://www.sqlite.org/fileformat.html#the_write_ahead_log.
const (
	logHeader = 32
	logFrame  = 24
)

// checksum is the checksum of a write-ahead log from its beginning to a frame.
type checksum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (c *checksum) add(data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		c.s0 += c.order.Uint32(data) + c.s1
		c.s1 += c.order.Uint32(data[4:]) + c.s0
	}
}

// matches reports whether 8 bytes of a log contain the checksum.
func (c *checksum) matches(data []byte) bool {
	return binary.BigEndian.Uint32(data) == c.s0 && binary.BigEndian.Uint32(data[4:]) == c.s1
}

// firstWrite returns the counter of the first write in a log, or false if the
// log has none. Every write of this package changes the counter in the
// database's header, so the header is among the first pages of the log.
func firstWrite(path string) (counter uint32, ok bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	head := make([]byte, logHeader)
	// SQLite also ignores everything from the first part that is not readable.
	if _, err := io.ReadFull(f, head); err != nil || binary.BigEndian.Uint32(head)&^1 != 0x377f0682 {
		return 0, false, nil
	}
	sum := checksum{order: binary.LittleEndian}
	if head[3]&1 == 1 {
		sum.order = binary.BigEndian
	}
	size := binary.BigEndian.Uint32(head[8:])
	if sum.add(head[:24]); !sum.matches(head[24:]) || size < 512 || size > 65536 {
		return 0, false, nil
	}
	for frame := make([]byte, logFrame+size); ; {
		if _, err := io.ReadFull(f, frame); err != nil || string(frame[8:16]) != string(head[16:24]) {
			return 0, false, nil
		}
		sum.add(frame[:8])
		sum.add(frame[logFrame:])
		if !sum.matches(frame[16:24]) {
			return 0, false, nil
		}
		if binary.BigEndian.Uint32(frame) == 1 {
			h := header(frame[logFrame:])
			return h.counter(), true, nil
		}
	}
}
