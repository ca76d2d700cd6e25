locals {
  count   = var.create ? 1 : 0
  subnets = var.create ? var.subnets : {}
  tags    = merge(var.tags, { Module = "acme/vpc/aws" })
}

data "aws_availability_zones" "available" {
  state = "available"
}

data "aws_region" "current" {}

data "aws_iam_policy_document" "flow_logs" {
  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["*"]
  }
}

module "labels" {
  source  = "registry.example.com/platform/labels/null"
  version = "~> 2.1"

  name = var.name
  tags = local.tags
}

module "endpoints" {
  source = "./modules/endpoints"

  vpc_id    = aws_vpc.this[0].id
  endpoints = var.interface_endpoints
}

module "cidr" {
  source  = "hashicorp/subnets/cidr"
  version = "1.0.0"

  base_cidr_block = var.cidr_block
  networks        = [for name, s in local.subnets : { name = name, new_bits = s.newbits }]
}

resource "aws_vpc" "this" {
  count                = local.count
  cidr_block           = var.cidr_block
  instance_tenancy     = var.instance_tenancy
  enable_dns_hostnames = var.enable_dns_hostnames
  tags                 = local.tags
}

resource "aws_vpc_ipv4_cidr_block_association" "secondary" {
  for_each   = toset(var.secondary_cidr_blocks)
  vpc_id     = aws_vpc.this[0].id
  cidr_block = each.value
}

resource "aws_subnet" "public" {
  for_each   = { for name, s in local.subnets : name => s if s.type == "public" }
  vpc_id     = aws_vpc.this[0].id
  cidr_block = module.cidr.network_cidr_blocks[each.key]
}

resource "aws_subnet" "private" {
  for_each   = { for name, s in local.subnets : name => s if s.type == "private" }
  vpc_id     = aws_vpc.this[0].id
  cidr_block = module.cidr.network_cidr_blocks[each.key]
}

resource "aws_subnet" "isolated" {
  for_each   = { for name, s in local.subnets : name => s if s.type == "isolated" }
  vpc_id     = aws_vpc.this[0].id
  cidr_block = module.cidr.network_cidr_blocks[each.key]
}

resource "aws_internet_gateway" "this" {
  count  = local.count
  vpc_id = aws_vpc.this[0].id
}

resource "aws_eip" "nat" {
  count  = var.nat_gateways == "none" ? 0 : local.count
  domain = "vpc"
}

resource "aws_nat_gateway" "this" {
  count         = length(aws_eip.nat)
  allocation_id = aws_eip.nat[count.index].id
  subnet_id     = values(aws_subnet.public)[count.index].id
}

resource "aws_route_table" "public" {
  count  = local.count
  vpc_id = aws_vpc.this[0].id
}

resource "aws_route_table" "private" {
  count  = local.count
  vpc_id = aws_vpc.this[0].id
}

resource "aws_route" "internet" {
  count                  = local.count
  route_table_id         = aws_route_table.public[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route" "nat" {
  count                  = length(aws_nat_gateway.this)
  route_table_id         = aws_route_table.private[0].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[count.index].id
}

resource "aws_route_table_association" "public" {
  for_each       = aws_subnet.public
  subnet_id      = each.value.id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_route_table_association" "private" {
  for_each       = aws_subnet.private
  subnet_id      = each.value.id
  route_table_id = aws_route_table.private[0].id
}

resource "aws_default_network_acl" "this" {
  count                  = local.count
  default_network_acl_id = aws_vpc.this[0].default_network_acl_id
}

resource "aws_default_security_group" "this" {
  count  = local.count
  vpc_id = aws_vpc.this[0].id
}

resource "aws_db_subnet_group" "this" {
  count      = local.count
  name       = coalesce(var.database_subnet_group_name, var.name)
  subnet_ids = values(aws_subnet.isolated)[*].id
}

resource "aws_flow_log" "this" {
  count           = var.enable_flow_logs ? local.count : 0
  vpc_id          = aws_vpc.this[0].id
  traffic_type    = var.flow_log_traffic_type
  log_destination = coalesce(var.flow_log_destination_arn, aws_cloudwatch_log_group.flow_logs[0].arn)
}

resource "aws_cloudwatch_log_group" "flow_logs" {
  count             = var.enable_flow_logs ? local.count : 0
  name_prefix       = "/vpc/${var.name}/"
  retention_in_days = var.flow_log_retention_days
}

resource "aws_vpn_gateway" "this" {
  count           = local.count
  vpc_id          = aws_vpc.this[0].id
  amazon_side_asn = var.vpn_gateway_amazon_side_asn
}

resource "random_id" "suffix" {
  byte_length = 4
}
