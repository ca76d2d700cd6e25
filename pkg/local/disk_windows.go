package local

import "golang.org/x/sys/windows"

// diskFree returns the free space in bytes of a folder's file system.
func diskFree(dir string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
