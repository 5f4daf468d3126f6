package plan

import (
	"encoding/binary"
	"slices"
	"strings"
)

// The layout of an image in sectors.
const (
	sector       = 2048
	volumeSector = 16
	pathTableLE  = volumeSector + 2
	pathTableBE  = pathTableLE + 1
	rootSector   = pathTableBE + 1
	firstFile    = rootSector + 1
)

// The modes of the directory and of files, which only root reads.
const (
	directoryMode = 0o040500
	fileMode      = 0o100400
)

// File is a file of an image.
type File struct {
	Name    string
	Content []byte
}

// Image returns an ISO 9660 image with a volume ID and files in its root
// directory, with Rock Ridge names. The order of the files is that of their names.
// The libraries that write such images keep the files in a directory of the host,
// and one of them changes their names.
func Image(volume string, files ...File) []byte {
	root := slices.Concat(
		record("\x00", rootSector, sector, true, "SP\x07\x01\xbe\xef\x00"+posix(directoryMode)+"ER\x12\x01\x0a\x00\x00\x01RRIP_1991A"),
		record("\x01", rootSector, sector, true, posix(directoryMode)))
	next, content := uint32(firstFile), []byte{}
	for _, f := range files {
		short := strings.ToUpper(strings.ReplaceAll(f.Name, "-", ""))
		short = short[:min(len(short), 8)] + ".;1"
		size := uint32(len(f.Content))
		root = append(root, record(short, next, size, false, posix(fileMode)+"NM"+string(rune(5+len(f.Name)))+"\x01\x00"+f.Name)...)
		content = append(content, pad(f.Content)...)
		next += (size + sector - 1) / sector
	}
	v := []byte("\x01CD001\x01\x00" + text("", 32) + text(volume, 32))
	v = append(v, make([]byte, 8)...)
	v = append(both32(v, next), make([]byte, 32)...)
	v = both32(both16(both16(both16(v, 1), 1), sector), 10) // one volume, and the size of the path table
	v = binary.LittleEndian.AppendUint32(v, pathTableLE)
	v = binary.BigEndian.AppendUint32(append(v, 0, 0, 0, 0), pathTableBE)
	v = append(v, 0, 0, 0, 0)
	v = append(v, record("\x00", rootSector, sector, true, "")...)
	v = append(v, text("", 623)...)
	for range 4 {
		v = append(v, strings.Repeat("0", 16)+"\x00"...) // no dates
	}
	v = append(v, 1)
	path := []byte{1, 0}
	return slices.Concat(make([]byte, volumeSector*sector), pad(v), pad([]byte("\xffCD001\x01")),
		pad(append(binary.LittleEndian.AppendUint32(slices.Clone(path), rootSector), 1, 0, 0, 0)),
		pad(append(binary.BigEndian.AppendUint32(slices.Clone(path), rootSector), 0, 1, 0, 0)),
		pad(root), content)
}

// record returns an entry of a directory with its system use entries.
func record(name string, at, size uint32, directory bool, use string) []byte {
	r := both32(both32([]byte{0, 0}, at), size)
	flags := byte(0)
	if directory {
		flags = 2
	}
	r = both16(append(r, 70, 1, 1, 0, 0, 0, 0, flags, 0, 0), 1)
	r = append(append(r, byte(len(name))), name...)
	if len(name)%2 == 0 {
		r = append(r, 0)
	}
	r = append(r, use...)
	if len(r)%2 == 1 {
		r = append(r, 0)
	}
	r[0] = byte(len(r))
	return r
}

// posix returns the system use entry for the mode of a file of root.
func posix(mode uint32) string {
	return string(both32(both32(both32(both32([]byte("PX\x24\x01"), mode), 1), 0), 0))
}

func both16(b []byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, v), v)
}

func both32(b []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, v), v)
}

// pad fills the last sector.
func pad(b []byte) []byte {
	return append(slices.Clip(b), make([]byte, (sector-len(b)%sector)%sector)...)
}

// text returns s in a field of n characters.
func text(s string, n int) string { return s + strings.Repeat(" ", n-len(s)) }
