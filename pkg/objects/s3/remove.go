package s3

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Remove removes all that is below a prefix for good: each version of each object, and each delete marker, one by one, so that
// one which is held back is named. It returns how many it has removed, also where it fails. Nothing being there is no error, and
// a missing permission is registry.ErrForbidden.
//
// In a bucket without versions an object is the version null of itself, so that the permissions are the same:
// s3:ListBucketVersions and s3:DeleteObjectVersion.
func (s *Store) Remove(ctx context.Context, prefix string) (removed int, err error) {
	if err := objects.CheckFolder(prefix); err != nil {
		return 0, err
	}
	// Once more, as something may have come in between.
	for {
		found, err := s.removeOnce(ctx, prefix)
		removed += found
		if found == 0 || err != nil {
			return removed, err
		}
	}
}

// removeOnce goes through what is listed once. A page is listed after those before it are gone.
func (s *Store) removeOnce(ctx context.Context, prefix string) (removed int, err error) {
	pages := s3.NewListObjectVersionsPaginator(s.client, &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return removed, s.refused(prefix, "s3:ListBucketVersions", err)
		}
		for _, v := range versionsOf(page) {
			if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: v.Key, VersionId: v.VersionId}); err != nil {
				return removed, s.refused(aws.ToString(v.Key), "s3:DeleteObjectVersion", err)
			}
			removed++
		}
	}
	return removed, nil
}

func versionsOf(page *s3.ListObjectVersionsOutput) (all []types.ObjectIdentifier) {
	for _, v := range page.Versions {
		all = append(all, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
	}
	for _, m := range page.DeleteMarkers {
		all = append(all, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
	}
	return all
}

// refused says which permission is missing, where one is.
func (s *Store) refused(key, permission string, err error) error {
	if c := code(err); c == "AccessDenied" || c == "Forbidden" {
		return fmt.Errorf("bucket %s: object %s: %w: it needs the permission %s: %w", s.bucket, key, registry.ErrForbidden, permission, err)
	}
	return s.translate(key, err)
}
